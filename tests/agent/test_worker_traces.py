"""Spans of workers, in the store: in the tree of the span that they work for."""

from tests.agent.programs import run_program
from tests.agent.test_propagation import FAR
from tests.ground.processes import wait_until
from tests.ground.stacks import Stack

SOURCE = """
import multiprocessing
import rankscope

def work(carrier):
    with rankscope.init(carrier=carrier) as run, run.span("in worker", "tool"):
        pass

with rankscope.init("workers", run_id="workers", quiet=True) as run:
    with run.trace("item", "rollout") as item:
        worker = multiprocessing.get_context("fork").Process(target=work, args=(item.context(),))
        worker.start()
        worker.join()
    print(item.trace_id)
"""


def test_a_workers_span_is_a_child_of_the_trainers_in_the_store(stack: Stack) -> None:
    ended = run_program(SOURCE, stack.home)

    assert ended.code == 0, ended.err
    path = f"/runs/workers/traces/{ended.out.strip()}?project=workers"
    wait_until(lambda: _spans(stack, "workers") == 2, what="both spans are stored")
    found = stack.get(path)
    (root,) = found["items"]
    assert (root["name"], found["spans"], found["orphans"]) == ("item", 2, 0)
    children = stack.get(f"/runs/workers/traces/{found['trace_id']}/spans?project=workers&parent={root['span_id']}")
    assert [(child["name"], child["rank"]) for child in children["items"]] == [("in worker", 0)]
    run = stack.get("/runs/workers?project=workers")
    roles = [process["process_role"] for process in run["processes"]]
    assert sorted(role for role in roles if role != "agent") == ["trainer", "worker"]
    assert (run["status"], run["ranks"]) == ("finished", 1)


def test_a_trace_whose_root_is_in_another_system_is_listed_by_its_first_span(stack: Stack) -> None:
    source = """
    import rankscope
    run = rankscope.init("started", run_id="started", quiet=True)
    with run.trace("here", "rollout"), run.span("inner"):
        pass
    """

    ended = run_program(source, stack.home, TRACEPARENT=FAR)

    assert ended.code == 0, ended.err
    wait_until(lambda: _spans(stack, "started") == 2, what="both spans are stored")
    (trace,) = stack.get("/runs/started/traces?project=started")["items"]
    assert (trace["trace_id"], trace["name"], trace["kind"]) == (FAR[3:35], "here", "rollout")


def _spans(stack: Stack, run: str) -> int:
    """How many spans of a run are stored; 0 before it is known."""
    found = stack.get(f"/runs?project={run}")["items"]
    if not found:
        return 0
    return int(stack.get(f"/runs/{run}?project={run}")["rows"]["spans"])
