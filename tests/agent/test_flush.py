"""`run.flush`: what was recorded before it is handed on when it returns, whatever else goes on."""

import os
import threading
import time
from typing import Any

import pytest

from rankscope import Run
from rankscope._export import Obstacle
from rankscope.errors import Rejected, Unavailable
from rankscope.testing import MemoryExporter
from rankscope_proto.names import Severity


def test_what_was_recorded_before_a_flush_is_handed_on_when_it_returns() -> None:
    exporter = MemoryExporter()
    with Run(exporter) as run:
        for index in range(100):
            with run.trace(f"t{index}") as trace:
                pass
            trace.flush()

            assert len(exporter.rows("spans")) == index + 1


def test_a_flush_returns_though_another_thread_records_without_end() -> None:
    exporter = MemoryExporter()
    is_over = threading.Event()

    def record(run: Run) -> None:
        while not is_over.is_set():
            run.log_metric("a", 1)

    with Run(exporter) as run:
        thread = threading.Thread(target=record, args=(run,))
        thread.start()
        try:
            for index in range(3):
                run.log_metric("b", index)
                assert run.flush(timeout=60)
                assert sum(row["name"] == "b" for row in exporter.rows("scalars")) == index + 1
        finally:
            is_over.set()
            thread.join()


def test_flushes_of_many_threads_are_all_answered_and_no_row_is_twice() -> None:
    exporter = MemoryExporter()
    answers: list[bool] = []

    def record(run: Run) -> None:
        for _ in range(50):
            run.log_metric("a", 1)
            answers.append(run.flush(timeout=60))

    with Run(exporter) as run:
        threads = [threading.Thread(target=record, args=(run,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert answers == [True] * 400
    assert len(exporter.rows("scalars")) == 400


def test_a_flush_without_room_says_so_and_recording_goes_on() -> None:
    exporter = MemoryExporter(room=1)
    with Run(exporter) as run:
        run.log_metric("a", 1)
        assert run.flush(timeout=0.05) is False

        exporter.room = None
        assert run.flush(timeout=60) is True
        assert [row["value"] for row in exporter.rows("scalars")] == [1.0]


def test_a_flush_of_nothing_makes_no_batch() -> None:
    exporter = MemoryExporter()
    with Run(exporter) as run:
        assert all(run.flush() for _ in range(10))
        assert len(exporter.batches) == 1  # what is said at the start


def test_a_flush_where_nothing_is_recorded_returns_at_once() -> None:
    assert Run(None).flush(timeout=3_600) is True
    run = Run(MemoryExporter())
    run.finish()
    assert run.flush(timeout=3_600) is True


def test_a_flush_in_a_forked_child_returns_at_once() -> None:
    with Run(MemoryExporter()) as run:
        child = os.fork()
        if child == 0:
            os._exit(0 if run.flush(timeout=3_600) else 1)

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_flush_that_the_end_of_the_run_overtakes_is_answered() -> None:
    exporter = MemoryExporter(room=1)
    run = Run(exporter)
    answers: list[bool] = []
    run.log_metric("a", 1)
    thread = threading.Thread(target=lambda: answers.append(run.flush(timeout=60)))
    thread.start()
    exporter.room = None

    run.finish()

    thread.join()
    assert answers == [True]


def test_the_end_of_a_root_span_makes_no_batch_of_its_own() -> None:
    exporter = MemoryExporter()
    began = time.monotonic()
    with Run(exporter) as run:
        answer = run.trace_op(kind="tool")(lambda: 42)
        for _ in range(1_000):
            assert answer() == 42
    seals = time.monotonic() - began

    assert len(exporter.rows("spans")) == 1_000
    assert len(exporter.batches) <= 4 + seals  # start, rows, end; and one for each second that it took


@pytest.mark.parametrize("act", ["flush", "finish"])
def test_what_waits_for_the_tier_hears_what_stands_in_the_way(act: str) -> None:
    exporter = MemoryExporter()
    exporter.waits_for = "accepted"
    exporter.is_accepted = exporter.is_durable = False
    run = Run(exporter)
    exporter.obstacle = Obstacle(Unavailable("it restarts"), is_lasting=False)

    with pytest.raises(Unavailable, match=r"has not accepted all of run .* yet \(it restarts\); the data is safe in"):
        getattr(run, act)(timeout=0.1)

    if act == "flush":
        exporter.obstacle = Obstacle(Rejected("no such section"), is_lasting=True)
        with pytest.raises(Rejected, match="no such section"):
            run.flush(timeout=60)
        exporter.obstacle, exporter.is_accepted = None, True
        assert run.flush(timeout=60)
        run.finish(timeout=60)
    assert exporter.is_closed


def test_what_is_kept_for_later_on_purpose_is_no_error_but_where_it_was_asked_for() -> None:
    exporter = MemoryExporter()
    exporter.waits_for, exporter.keeps_unsent = "accepted", True
    exporter.is_accepted = exporter.is_durable = False
    run, other = Run(exporter), Run(exporter)

    assert run.flush(timeout=0.01) is False
    run.finish(timeout=0.05)
    with pytest.raises(Unavailable):
        other.finish(wait="accepted", timeout=0.05)


def test_an_alert_has_its_level_its_step_and_its_span_and_a_wrong_level_raises() -> None:
    exporter = MemoryExporter()
    with Run(exporter) as run:
        with run.step(7) as step:
            run.alert("loss jumped", "from 1 to 9\n", level="error")
        run.alert("quiet")
        with pytest.raises(ValueError, match="debug, info, warning, error"):
            run.alert("x", level="loud")
        run.flush()

        first, second = (row for row in exporter.rows("events") if row["kind"] == "alert")
    assert (first["name"], first["severity"], first["step"]) == ("loss jumped", Severity.ERROR.code, 7)
    assert (first["span_id"], first["payload"]) == (step.id, '{"text": "from 1 to 9\\n"}')
    assert (second["severity"], second["step"], second["span_id"]) == (Severity.WARNING.code, None, 0)


def test_a_level_is_read_as_every_other_word() -> None:
    exporter = MemoryExporter()
    number: Any = 3

    with Run(exporter) as run:
        run.alert("loud", level="ERROR")
        with pytest.raises(TypeError, match="one of debug, info, warning, error; not 3"):
            run.alert("x", level=number)

    assert [row["severity"] for row in exporter.rows("events") if row["kind"] == "alert"] == [Severity.ERROR.code]
