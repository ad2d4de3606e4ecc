"""From rows to batches: bounds, numbering, and sums that are exact whatever happens."""

import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope import Run
from rankscope._block import Block
from rankscope._identity import Identity
from rankscope._masks import Masks
from rankscope._ring import Ring
from rankscope._seal import SEAL_BYTES, SEAL_ROWS, Sealer
from rankscope._span_events import SpanEvent, event_block
from rankscope._tracing_options import TracingOptions
from rankscope.privacy import Redactor
from rankscope.testing import ManualClock, MemoryExporter, rows_of
from rankscope_proto.columns import SECTIONS
from rankscope_proto.identity import payload_digest
from rankscope_proto.names import GapCause, GapClass
from rankscope_proto.v1.batch_pb2 import Batch

WHO = Identity("p", "r", b"l" * 16, b"i" * 16, rank=3, world_size=8, node="n", pid=5, boot_id="b", mesh=(("dp", 1),))


def scalars(count: int, *, step: int | None = None, name: str = "m") -> Block:
    columns: dict[str, list[int | float | str]] = {
        "name": [name] * count,
        "value": [0.5] * count,
        "time": [1_750_000_000_000_000_000] * count,
    }
    if step is not None:
        columns["step"] = [step] * count
    return Block("scalars", count, columns)


def sealer() -> Sealer:
    return Sealer(WHO, clock=ManualClock())


def assert_exact(exporter: MemoryExporter) -> None:
    """Emitted = stored + lost, for every section, in the last header."""
    header = exporter.headers()[-1]
    stored, lost = Counter[str](), Counter[str]()
    for section in SECTIONS:
        stored[section.name] = len(exporter.rows(section.name))
    for gap in exporter.rows("gaps"):
        assert gap["class"] == GapClass.LOST.code
        lost[str(gap["data_kind"])] += int(str(gap["count"]))
    for section in SECTIONS:
        assert getattr(header, f"emitted_{section.name}") == stored[section.name] + lost[section.name], section.name


def test_a_batch_says_who_sealed_it_and_its_bytes_match_its_digest() -> None:
    sealing = sealer()
    sealing.add(scalars(2))

    batch = sealing.seal()

    assert batch is not None
    header = Batch.FromString(batch.payload).header
    assert batch.digest == payload_digest(batch.payload)
    assert (batch.seq, batch.rows, batch.week, batch.counts) == (0, 2, header.week, {"scalars": 2})
    assert (header.rank, header.world_size, header.node, header.pid) == (3, 8, "n", 5)
    assert (header.incarnation, list(header.mesh_axis), list(header.mesh_coordinate)) == (b"i" * 16, ["dp"], [1])
    assert header.emitted_scalars == 2


def test_numbers_of_batches_have_no_holes_and_nothing_is_no_batch() -> None:
    sealing = sealer()

    assert sealing.seal() is None
    for seq in range(3):
        sealing.add(scalars(1))
        batch = sealing.seal()
        assert batch is not None
        assert batch.seq == seq
    assert sealing.seal() is None


def test_text_said_twice_travels_once() -> None:
    sealing = sealer()
    sealing.add(scalars(1_000, name="a name of some length"))

    batch = sealing.seal()

    assert batch is not None
    assert list(Batch.FromString(batch.payload).strings) == ["", "a name of some length"]


def test_blocks_with_different_columns_share_a_batch() -> None:
    sealing = sealer()
    for block in (scalars(2, step=7), scalars(1), scalars(1, step=0)):
        sealing.add(block)

    batch = sealing.seal()

    assert batch is not None
    rows = list(rows_of(Batch.FromString(batch.payload), "scalars"))
    assert [row["step"] for row in rows] == [7, 7, None, 0]


@given(st.lists(st.tuples(st.integers(1, 5), st.none() | st.integers(0, 9), st.booleans()), min_size=1, max_size=6))
def test_every_row_keeps_its_own_values(parts: list[tuple[int, int | None, bool]]) -> None:
    sealing, expected = sealer(), list[tuple[int | None, float | None]]()
    for count, step, has_norm in parts:
        columns: dict[str, list[int | float | str]] = {
            "name": ["w"] * count,
            "shape": [2, 3] * count,
            "shape_n": [2] * count,
        }
        if step is not None:
            columns["step"] = [step] * count
        if has_norm:
            columns["l2"] = [0.5] * count
        sealing.add(Block("tensor_stats", count, columns))
        expected += [(step, 0.5 if has_norm else None)] * count

    batch = sealing.seal()

    assert batch is not None
    rows = list(rows_of(Batch.FromString(batch.payload), "tensor_stats"))
    assert [(row["step"], row["l2"]) for row in rows] == expected
    assert {tuple(map(int, row["shape"])) for row in rows} == {(2, 3)}  # pyright: ignore[reportArgumentType]


def test_a_batch_is_full_at_2000_rows_and_at_256_kib() -> None:
    many, large = sealer(), sealer()
    many.add(scalars(SEAL_ROWS - 1))
    assert not many.is_full
    many.add(scalars(1))
    large.add(Block("events", 1, {"time": [1], "payload": ["x" * SEAL_BYTES]}))

    assert many.is_full
    assert large.is_full


@pytest.mark.parametrize(
    "block",
    [
        Block("scalars", 2, {"name": ["a"], "value": [1.0, 2.0], "time": [1, 1]}),
        Block("scalars", 1, {"name": ["a"], "value": ["text"], "time": [1]}),
        Block("scalars", 1, {"name": ["a"], "value": [1.0], "time": [2**70]}),
        Block("scalars", 1, {"name": ["a"], "velocity": [1.0]}),
        Block("gaps", 1, {"class": [-1]}),
        Block("tensor_stats", 1, {"name": ["a"], "shape": [1, 2], "shape_n": [1]}),
    ],
)
def test_a_malformed_block_is_stated_as_lost_and_the_rest_is_stored(block: Block) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        run._recording.append(block)  # pyright: ignore[reportPrivateUsage]  # what the probe is given
        run.log_metric("good", 1)

    assert [row["name"] for row in exporter.rows("scalars")] == ["good"]
    (gap,) = exporter.rows("gaps")
    assert (gap["cause"], gap["data_kind"], gap["count"]) == (GapCause.QUARANTINED, block.section, block.count)
    assert_exact(exporter)


def test_a_full_ring_drops_the_newest_and_counts_them_by_section() -> None:
    ring = Ring(10)

    taken = [ring.append(scalars(4)) for _ in range(4)]

    assert taken == [True, True, False, False]
    assert [item.count for item in ring.drain(100)] == [4, 4]
    assert (ring.take_dropped(), ring.take_dropped()) == ({"scalars": 8}, {})
    assert ring.append(scalars(10))


def test_a_drain_takes_about_what_was_asked_for() -> None:
    ring = Ring(100)
    for _ in range(5):
        ring.append(scalars(4))

    assert [item.count for item in ring.drain(5)] == [4, 4]
    assert ring.rows() == 12


def test_emitted_is_stored_plus_lost_exactly_under_many_threads() -> None:
    exporter = MemoryExporter()
    calls, threads = 3_000, 8

    def emit(run: Run) -> None:
        for index in range(calls):
            with run.span("a"):
                pass
            run.log_metrics({"a": 1, "b": index})

    run = Run(exporter, tracing=TracingOptions(ring_rows=500))
    workers = [threading.Thread(target=emit, args=(run,)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    run.finish()

    header = exporter.headers()[-1]
    assert (header.emitted_spans, header.emitted_scalars) == (calls * threads, 2 * calls * threads)
    assert exporter.rows("gaps")
    assert [batch.seq for batch in exporter.batches] == list(range(len(exporter.batches)))
    assert_exact(exporter)


def test_without_room_rows_wait_then_drop_and_the_count_arrives_with_the_first_room() -> None:
    exporter = MemoryExporter(room=0)
    run = Run(exporter, tracing=TracingOptions(ring_rows=100))
    for _ in range(10_000):
        run.log_metric("a", 1)
    exporter.room = None
    run.finish()

    assert exporter.headers()[-1].emitted_scalars == 10_000
    assert_exact(exporter)


def test_a_row_that_cannot_be_made_is_counted_and_those_behind_it_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = MemoryExporter()

    def broken(event: SpanEvent, *_: object, **__: object) -> Block:
        if event.name == "bad":
            raise RuntimeError("no row")
        return event_block(event, ManualClock(), masks=Masks(Redactor()))

    monkeypatch.setattr("rankscope._seal.event_block", broken)
    with Run(exporter) as run, run.span("around") as span:
        for name in ("good", "bad", "good"):
            span.add_event(name)
            run.start_span(f"behind {name}").finish()

    assert [row["name"] for row in exporter.rows("events") if row["kind"] == "span_event"] == ["good", "good"]
    assert len(exporter.rows("spans")) == 4
    (gap,) = exporter.rows("gaps")
    assert (gap["cause"], gap["data_kind"], gap["count"]) == ("quarantined", "events", 1)
    assert_exact(exporter)
