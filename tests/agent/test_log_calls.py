"""Log calls become columns late: what they recorded is what was true when they were made, in their order."""

from decimal import Decimal

import pytest

from rankscope import Run
from rankscope._block import Block
from rankscope._metric_rows import MetricRows
from rankscope._ring import Ring
from rankscope._seal import Sealer
from rankscope.testing import ManualClock, MemoryExporter, rows_of
from rankscope_proto.names import GapCause
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.test_sealing import WHO, assert_exact, scalars


def test_values_and_step_are_those_of_the_call_whatever_changes_after_it() -> None:
    exporter, clock = MemoryExporter(), ManualClock()
    values = {"loss": 1.0, "rate": 2.0}

    with Run(exporter, clock=clock) as run:
        with run.step(4):
            run.log_metrics(values)
            called_ns = clock.wall_ns()
        values["loss"] = 9.0
        values["new"] = 9.0
        del values["rate"]
        clock.advance(1_000)

    rows = [(row["name"], row["value"], row["step"], row["time"]) for row in exporter.rows("scalars")]
    assert rows == [("loss", 1.0, 4, called_ns), ("rate", 2.0, 4, called_ns)]


def test_whatever_has_a_number_becomes_it_and_names_stay_themselves() -> None:
    exporter = MemoryExporter()

    class Name(str):
        __slots__ = ()

    with Run(exporter) as run:
        run.log_metrics({"a": 1, "b": True, "c": Decimal("0.5"), "d": "2.5", Name("e"): 3.0})  # pyright: ignore[reportArgumentType]

    assert {row["name"]: row["value"] for row in exporter.rows("scalars")} == {
        "a": 1.0,
        "b": 1.0,
        "c": 0.5,
        "d": 2.5,
        "e": 3.0,
    }


def test_calls_of_every_size_and_rows_of_others_share_batches_in_their_order() -> None:
    exporter = MemoryExporter()
    expected: list[tuple[object, object]] = []

    with Run(exporter) as run:
        for step in (None, 3, 3, None, 0):
            run.log_metrics({"a": 1.0, "b": 2.0}, step=step)
            expected += [("a", step), ("b", step)]
        run._recording.append(scalars(2, step=7, name="block"))  # pyright: ignore[reportPrivateUsage]  # as a producer of blocks does
        expected += [("block", 7)] * 2
        run.log_metric("c", 1.0)
        run.log_metric("long" * 40, 1.0, step=8)
        run.log_metrics({f"many {index}": 1.0 for index in range(4_500)}, step=9)
        run.log_metric("d", 1.0, step=10)
        expected += [("c", None), ("long" * 40, 8), *((f"many {index}", 9) for index in range(4_500)), ("d", 10)]

    assert [(row["name"], row["step"]) for row in exporter.rows("scalars")] == expected
    assert_exact(exporter)


def test_long_names_count_in_the_budget_of_text_and_short_ones_do_not() -> None:
    exporter = MemoryExporter(room=0)
    long = {f"{index}{'x' * 400}": 1.0 for index in range(10)}

    run = Run(exporter)
    for _ in range(5_000):
        run.log_metrics(long)
    for _ in range(1_000):
        run.log_metric("short", 1.0)
    exporter.room = None
    run.finish()

    lost = sum(int(str(gap["count"])) for gap in exporter.rows("gaps") if gap["cause"] == GapCause.RING_FULL)
    assert 0 < lost < 50_000
    assert [row["name"] for row in exporter.rows("scalars")].count("short") == 1_000
    assert_exact(exporter)


def test_a_call_that_finds_no_room_is_dropped_whole_and_counted_by_its_values() -> None:
    ring = Ring(5)
    calls = [MetricRows({"a": 1.0, "b": 2.0, "c": 3.0}, step, 0, 0) for step in range(2)]

    taken = [ring.append(call) for call in calls]

    assert taken == [True, False]
    assert ring.take_dropped() == {"scalars": 3}
    assert ring.drain(10) == calls[:1]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_row_that_cannot_be_built_takes_no_log_call_with_it(is_first: bool) -> None:
    sealing = Sealer(WHO, clock=ManualClock())
    bad = Block("scalars", 1, {"name": ["bad"], "value": ["no number"], "time": [1]})
    items = [MetricRows({"a": 1.0, "b": 2.0}, None, 1, 0), MetricRows({"c": 3.0}, 5, 1, 0)]
    items_and_bad = [bad, *items] if is_first else [*items, bad]

    for item in items_and_bad:
        sealing.add(item)
    assert sealing.emitted("scalars") == 4
    batch = sealing.seal()

    assert batch is not None
    message = Batch.FromString(batch.payload)
    rows = [(row["name"], row["step"]) for row in rows_of(message, "scalars")]
    assert rows == [("a", None), ("b", None), ("c", 5)]
    (gap,) = rows_of(message, "gaps")
    assert (gap["cause"], message.header.emitted_scalars) == (GapCause.QUARANTINED, 4)
