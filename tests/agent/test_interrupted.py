"""However a process ends in order, what is open in it ends as interrupted: in threads, in tasks, in workers."""

import signal
from pathlib import Path

import pytest

from rankscope.spool import spools
from rankscope_proto.names import SpanStatus
from tests.agent.programs import run_program
from tests.agent.spooled import assert_exact, batches_of, is_ended, rows_in

TRAINING = """
import asyncio, multiprocessing, os, signal, sys, threading, time
import rankscope

run = rankscope.init("chars", run_id="r", quiet=True)
entered = threading.Barrier(4)

def thread():
    with run.trace("in a thread"):
        entered.wait(30)
        time.sleep(60)

async def task():
    with run.span("in a task"):
        entered.wait(30)
        await asyncio.sleep(60)

def loop():
    asyncio.run(task())

def generator():
    with run.span("in a generator"):
        yield

def work(carrier, open_spans, goes_on):
    worker = rankscope.init(carrier=carrier)
    worker.start_span("started in a worker").start()
    open_spans.set()
    goes_on.wait(30)

with run.trace("parent") as parent:
    fork = multiprocessing.get_context("fork")
    open_spans, goes_on = fork.Event(), fork.Event()
    worker = fork.Process(target=work, args=(parent.context(), open_spans, goes_on))
    worker.start()
    open_spans.wait(30)
    goes_on.set()
    worker.join()
left = generator()
next(left)
started = run.start_span("started")
for target in (thread, loop):
    threading.Thread(target=target, daemon=True).start()
traced = run.trace("entered").__enter__()
threading.Thread(target=entered.wait, daemon=True).start()
entered.wait(30)
END
"""

OPEN = {"in a thread", "in a task", "in a generator", "started in a worker", "started", "entered"}

ENDS = (
    ("pass", 0),
    ("sys.exit(3)", 3),
    ("raise ValueError('no')", 1),
    ("rankscope.finish()", 0),
    ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
    ("signal.raise_signal(signal.SIGINT); time.sleep(60)", -signal.SIGINT),
)


@pytest.mark.parametrize(("end", "code"), ENDS)
def test_what_is_open_ends_as_interrupted_and_nothing_lies_there_for_a_sender_to_state(
    tmp_path: Path, end: str, code: int
) -> None:
    ended = run_program(TRAINING.replace("END", end), tmp_path, RANKSCOPE_AGENT="none")

    assert ended.code == code, ended.err
    root = tmp_path / "spool"
    rows = rows_in(root, "spans")
    assert sorted(str(row["name"]) for row in rows) == sorted(OPEN | {"parent"})
    assert {row["name"] for row in rows if row["status"] == SpanStatus.INTERRUPTED.code} == OPEN
    assert not list(root.glob("*/left_open"))
    for folder in spools(root):
        assert is_ended(folder)
        assert_exact(batches_of(folder))


def test_an_exception_that_passes_through_is_an_error_and_interrupts_only_what_it_does_not_pass(tmp_path: Path) -> None:
    source = """
    import rankscope
    run = rankscope.init("chars", run_id="r", quiet=True)
    left = run.start_span("left")
    with run.trace("outer"), run.span("inner"):
        raise LookupError("broken")
    """

    ended = run_program(source, tmp_path, RANKSCOPE_AGENT="none")

    assert ended.code == 1
    statuses = {row["name"]: row["status"] for row in rows_in(tmp_path / "spool", "spans")}
    error, interrupted = SpanStatus.ERROR.code, SpanStatus.INTERRUPTED.code
    assert statuses == {"outer": error, "inner": error, "left": interrupted}
