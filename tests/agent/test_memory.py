"""What the SDK keeps while nobody takes it: bounded by text as by rows, and given up in time."""

import threading
import tracemalloc
from typing import TYPE_CHECKING

from rankscope import Run
from rankscope._export import SealedBatch
from rankscope._ring import Ring
from rankscope.testing import MemoryExporter
from rankscope_proto.names import GapCause
from tests.agent.test_sealing import assert_exact
from tests.ground.processes import wait_until

if TYPE_CHECKING:
    from rankscope._outcome import Outcome

MIB = 1024 * 1024


def test_spans_with_text_of_any_size_keep_within_a_few_tens_of_mebibytes() -> None:
    exporter = MemoryExporter(room=0)
    tracemalloc.start()

    run = Run(exporter)
    for index in range(2_000):
        with run.span("a", attributes={"prompt": f"{index}{'x' * 500_000}"}) as span:
            span.add_attributes({"again": f"{index}{'y' * 500_000}"})
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    exporter.room = None
    run.finish()

    assert kept < 40 * MIB
    assert exporter.headers()[-1].emitted_spans == 2_000
    assert {gap["cause"] for gap in exporter.rows("gaps")} == {GapCause.RING_FULL}
    assert_exact(exporter)


def test_names_ids_and_metrics_are_cut_when_they_are_given() -> None:
    huge = "x" * 1_000_000

    with Run(MemoryExporter()) as run:
        span = run.start_span(huge, thread_id=huge, metrics={f"{index}{huge}": 1.0 for index in range(100)})
        span.add_attributes({huge: huge})
        span.finish()

    assert len(span.name) + len(span.thread_id) < 2_100
    assert sum(map(len, span.metrics or {})) < 17_000
    assert sum(len(key) + len(str(value)) for key, value in (span.attributes or {}).items()) < 34_000


def test_a_hundred_attributes_set_one_by_one_keep_to_the_bound_of_a_span() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a") as span:
        for index in range(100):
            span.add_attributes({f"k{index}": "x" * 30_000})

        assert sum(len(str(value)) for value in (span.attributes or {}).values()) < 34_000

    assert exporter.rows("spans")[0]["flags"]


def test_a_ring_is_full_of_text_as_of_rows() -> None:
    ring = Ring(100, capacity_text=100)

    with Run(None) as run:
        spans = [run.span("a", attributes={"a": "x" * 1_000}) for _ in range(2)]

    assert [ring.append(span) for span in spans] == [False, False]
    assert ring.take_dropped() == {"spans": 2}
    assert ring.append(run.span("small", attributes={"a": "b"}))


def test_what_a_lost_thread_left_behind_is_said_as_not_spooled_and_holds_nothing_up() -> None:
    stuck = StuckExporter()
    outcomes: list[Outcome] = []
    run = Run(stuck)
    run.on_finish(outcomes.append)
    stuck.is_stuck.set()
    for _ in range(1_000):
        run.log_metric("a", 1)
    wait_until(lambda: stuck.is_asked, what="be asked")

    run.finish(timeout=0.2)

    (outcome,) = outcomes
    assert (outcome.spooled, outcome.dropped) == (1, 0)
    assert outcome.unspooled
    assert not stuck.is_closed
    stuck.is_stuck.clear()


class StuckExporter(MemoryExporter):
    """A disk that does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck = threading.Event()
        self.is_asked = False

    def send(self, batch: SealedBatch, *, is_last: bool = False, urgent: bool = False) -> bool:
        while self.is_stuck.is_set():
            self.is_asked = True
            threading.Event().wait(0.01)
        return super().send(batch, is_last=is_last, urgent=urgent)


def test_labels_set_again_and_again_do_not_cost_the_span_its_place() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a") as span:
        for index in range(1_000):
            span.add_attributes({"text": f"{index}{'x' * 30_000}"})

    (row,) = exporter.rows("spans")
    assert str(row["attributes"]).startswith("{'text': '999x")
    assert not exporter.rows("gaps")


def test_an_event_of_any_size_is_cut_when_it_is_given() -> None:
    exporter, huge = MemoryExporter(), "x" * 1_000_000

    with Run(exporter) as run, run.span("a") as span:
        for _ in range(20):
            span.add_event(huge, {huge: huge, "more": [huge] * 100})

    events = [row for row in exporter.rows("events") if row["kind"] == "span_event"]
    assert len(events) == 20
    assert max(len(str(row["name"])) for row in events) == 512
    assert max(len(str(row["payload"])) for row in events) < 36_000
