"""One path, with real parts: a trainer, the gateway, the broker, the writer, the store, a query."""

from pathlib import Path

import pytest

from tests.ground.processes import Children, python, wait_until
from tests.ground.ranks import Pool
from tests.ground.stacks import Stack
from tests.system import cases


def test_one_span_and_one_statistic_reach_a_query(stack: Stack, children: Children) -> None:
    environ = {**stack.environ, "RANKSCOPE_RUN_ID": "first-light", "RANKSCOPE_RANK": "0", "RANKSCOPE_WORLD_SIZE": "1"}
    program = python("tests.system.cases", "one_span_and_one_statistic")
    trainer = children.start(program, name="trainer", environ=environ)

    assert trainer.wait(60) == 0, trainer.output()

    assert stack.gateway in trainer.output()
    wait_until(lambda: is_complete(stack, "first-light"), what="all rows in the store")
    (span,) = stack.tql('span.name == "look"', run="first-light")
    assert (span["kind"], span["step"], span["path"]) == ("tool", 0, "step/look")
    assert span["attributes"] == {"where": "here", "times": 3.0}
    (grad,) = stack.tql('tensor.role == "grad" and tensor.name == "weight"', run="first-light")
    assert grad["shape"] == [2, 3]
    assert grad["l2"] == pytest.approx(6**0.5)


def test_all_ranks_land_in_one_run_with_one_launch_and_one_trace_a_step(stack: Stack, pool: Pool) -> None:
    told = {"RANKSCOPE_HOME": str(stack.home), "RANKSCOPE_RUN_ID": "four-ranks", "RANKSCOPE_QUIET": "1"}

    assert pool.run(cases.trained, environ=told, steps=3) == ["four-ranks"] * 4

    wait_until(lambda: is_complete(stack, "four-ranks"), what="all rows in the store")
    heard = stack.get("/runs/four-ranks/completeness")["processes"]
    processes = [process for process in heard if process["process_role"] == "trainer"]
    assert sorted(process["rank"] for process in processes) == [0, 1, 2, 3]
    assert len({process["launch_id"] for process in processes}) == 1
    steps = stack.tql('span.name == "step"', run="four-ranks")
    traces = {(span["step"], span["trace_id"]) for span in steps}
    assert len(steps) == 12
    assert sorted(step for step, _ in traces) == [0, 1, 2]


def test_ranks_without_a_run_id_agree_on_one(stack: Stack, pool: Pool) -> None:
    told = {"RANKSCOPE_HOME": str(stack.home), "RANKSCOPE_QUIET": "1"}

    ids = pool.run(cases.trained, environ=told, steps=1)

    assert len(set(ids)) == 1
    wait_until(lambda: is_complete(stack, ids[0]), what="all rows in the store")
    tree = stack.get(f"/runs/{ids[0]}/steps/0/tree")
    assert "step" in str(tree)


def test_a_second_trainer_of_a_rank_is_refused_and_told_who_holds_it(
    stack: Stack, children: Children, tmp_path: Path
) -> None:
    environ = {**stack.environ, "RANKSCOPE_RUN_ID": "held", "RANKSCOPE_RANK": "0", "RANKSCOPE_WORLD_SIZE": "2"}
    stop_file = tmp_path / "stop"
    program = python("tests.system.cases", "holding_the_rank", stop_file)
    first = children.start(program, name="first", environ=environ)
    first.await_that(lambda: "joined" in first.output(), what="join")

    second = children.start(program, name="second", environ=environ)

    assert second.wait(60) == 1
    assert "ConfigError" in second.output()
    assert str(first.pid) in second.output()
    stop_file.touch()
    assert first.wait(60) == 0, first.output()


def is_complete(stack: Stack, run: str) -> bool:
    """Whether every process of the run has ended and all it emitted is stored."""
    found = [item for item in stack.get("/runs")["items"] if item["run_id"] == run]
    if not found:
        return False
    answer = stack.get(f"/runs/{run}/completeness")
    return bool(answer["complete"] and answer["ended"])
