"""Which spans are kept where a run is told to keep a share of them: whole traces, some kinds, so many a trace."""

from collections import Counter
from contextlib import suppress

import pytest

from rankscope import Run
from rankscope._sampling import LeftOut, Sampling
from rankscope._tracing_options import TracingOptions
from rankscope.testing import MemoryExporter
from rankscope_proto.names import GapCause

TRACES = 400


def trees_of(exporter: MemoryExporter) -> dict[tuple[object, object], list[str]]:
    """Names by trace."""
    trees: dict[tuple[object, object], list[str]] = {}
    for row in exporter.rows("spans"):
        trees.setdefault((row["trace_hi"], row["trace_lo"]), []).append(str(row["name"]))
    return trees


def left_out(exporter: MemoryExporter) -> Counter[str]:
    """Spans that are stated as not captured, by cause."""
    counts: Counter[str] = Counter()
    for row in exporter.rows("gaps"):
        assert (row["class"], row["data_kind"]) == (2, "spans")
        counts[str(row["cause"])] += int(str(row["count"]))
    return counts


def roll_out(run: Run, trace_id: str | None = None) -> None:
    with run.trace("root", trace_id=trace_id), run.span("child", kind="tool"), run.span("grandchild"):
        pass


def test_a_share_of_the_traces_is_kept_whole_and_the_rest_is_counted() -> None:
    exporter = MemoryExporter()

    with Run(exporter, tracing=TracingOptions(sample_rate=0.25)) as run:
        for _ in range(TRACES):
            roll_out(run)

    trees = trees_of(exporter)
    assert all(len(names) == 3 for names in trees.values())
    assert TRACES * 0.1 < len(trees) < TRACES * 0.4
    assert left_out(exporter) == {"sampled": 3 * (TRACES - len(trees))}


def test_every_rank_keeps_the_same_traces_also_those_with_ids_in_a_row() -> None:
    exporters = [MemoryExporter(), MemoryExporter()]

    for exporter in exporters:
        with Run(exporter, tracing=TracingOptions(sample_rate=0.5)) as run:
            for index in range(TRACES):
                roll_out(run, trace_id=f"{index + 1:032x}")

    ours, theirs = (set(trees_of(exporter)) for exporter in exporters)
    assert ours == theirs
    assert TRACES * 0.3 < len(ours) < TRACES * 0.7


@pytest.mark.parametrize(("rate", "kept"), [(0.0, 0), (1.0, 3)])
def test_none_or_all_are_kept_at_the_ends_of_the_scale(rate: float, kept: int) -> None:
    exporter = MemoryExporter()

    with Run(exporter, tracing=TracingOptions(sample_rate=rate)) as run:
        roll_out(run)

    assert len(exporter.rows("spans")) == kept
    assert left_out(exporter) == ({"sampled": 3 - kept} if kept < 3 else {})


def test_a_trace_that_is_left_out_works_as_any_and_is_left_out_with_its_errors_and_events() -> None:
    exporter = MemoryExporter()

    with Run(exporter, tracing=TracingOptions(sample_rate=0.0)) as run:
        with suppress(KeyError), run.trace("root", capture="preview", inputs=object()) as root:
            root.add_event("happened")
            root.set_output(1)
            with root.span("child", kind="tool", metrics={"a": 1}) as child:
                assert child.trace_id == root.trace_id
            raise KeyError
        started = run.start_span("started")
        started.finish()

    assert not exporter.rows("spans")
    assert not [row for row in exporter.rows("events") if row["kind"] == "span_event"]
    assert left_out(exporter) == {"sampled": 3}
    assert not run.faults


def test_steps_and_their_phases_are_always_kept() -> None:
    exporter = MemoryExporter()
    options = TracingOptions(sample_rate=0.0, sample_by_kind={"system": 0.0}, max_spans_per_trace=2)

    with Run(exporter, tracing=options) as run:
        for index in range(3):
            with run.step(index) as step:
                for phase in ("forward", "backward", "optimizer"):
                    with step.phase(phase):
                        pass
                with run.trace("beside"):
                    pass

    names = Counter(str(row["name"]) for row in exporter.rows("spans"))
    assert names == {"step": 3, "forward": 3, "backward": 3, "optimizer": 3}
    assert left_out(exporter) == {"sampled": 3}


def test_the_children_of_a_kind_that_is_left_out_belong_to_the_nearest_span_that_is_kept() -> None:
    exporter = MemoryExporter()

    with Run(exporter, tracing=TracingOptions(sample_by_kind={"tool": 0.0})) as run:
        with (
            run.trace("root", step=1) as root,
            run.span("a", kind="tool", step=2),
            run.span("b", kind="tool"),
            run.span("leaf", kind="model"),
            run.span("under"),
        ):
            pass
        with run.trace("bare", kind="tool") as bare, run.span("orphan"):
            pass

    rows = {str(row["name"]): row for row in exporter.rows("spans")}
    assert set(rows) == {"root", "leaf", "under", "orphan"}
    assert (rows["leaf"]["parent_span_id"], rows["leaf"]["path"], rows["leaf"]["depth"]) == (root.id, "root/leaf", 1)
    assert (rows["leaf"]["step"], rows["under"]["parent_span_id"]) == (2, rows["leaf"]["span_id"])
    assert (rows["orphan"]["parent_span_id"], rows["orphan"]["trace_lo"]) == (0, bare.trace_lo)
    assert left_out(exporter) == {"sampled": 3}


def test_a_share_of_a_kind_is_kept() -> None:
    exporter = MemoryExporter()

    with Run(exporter, tracing=TracingOptions(sample_by_kind={"tool": 0.5})) as run, run.trace("root"):
        for _ in range(TRACES):
            with run.span("call", kind="tool"):
                pass

    kept = sum(row["name"] == "call" for row in exporter.rows("spans"))
    assert TRACES * 0.3 < kept < TRACES * 0.7
    assert left_out(exporter) == {"sampled": TRACES - kept}


def test_a_trace_keeps_so_many_spans_of_a_process_and_the_others_are_counted() -> None:
    exporter = MemoryExporter()

    with Run(exporter, tracing=TracingOptions(max_spans_per_trace=10)) as run:
        with run.trace("root"):
            for index in range(20):
                with run.span(f"s{index}"), run.span("under"):
                    pass
        with run.trace("next"), run.span("of another trace"):
            pass

    names = Counter(str(row["name"]) for row in exporter.rows("spans"))
    assert names.total() == 10 + 2
    assert names["root"] == names["of another trace"] == 1
    assert left_out(exporter) == {"budget": 31}


def test_what_is_left_out_is_not_shown_as_open() -> None:
    with Run(MemoryExporter(), tracing=TracingOptions(sample_rate=0.0)) as run, run.trace("root"):
        recording = run._recording  # pyright: ignore[reportPrivateUsage]  # what the sealing thread reads
        assert not recording.open_spans


def test_wrong_fields_are_said_of_spans_that_are_left_out_too() -> None:
    with Run(MemoryExporter(), tracing=TracingOptions(sample_rate=0.0)) as run:
        with pytest.raises(ValueError, match="kind"):
            run.trace("a", kind="banana")
        with run.trace("root"), pytest.raises(ValueError, match="a rank is from 0"):
            run.span("a", rank=-1)


def test_a_share_is_a_share_for_small_ids_too() -> None:
    sampling = Sampling(TracingOptions(sample_rate=0.3))

    small = sum(sampling.keeps_trace(number) for number in range(1, 20_001)) / 20_000
    high = sum(sampling.keeps_trace(number << 64) for number in range(1, 20_001)) / 20_000

    assert 0.28 < small < 0.32
    assert 0.28 < high < 0.32


def trace_id_that(sampling: Sampling, *, is_kept: bool) -> str:
    number = next(number for number in range(1, TRACES) if sampling.keeps_trace(number) is is_kept)
    return f"{number:032x}"


@pytest.mark.parametrize(("is_kept", "expected"), [(True, {"sampled": 2}), (False, {"sampled": 4})])
def test_a_trace_that_begins_inside_one_that_is_left_out_is_kept_or_not_by_its_own_id(
    *, is_kept: bool, expected: dict[str, int]
) -> None:
    exporter, options = MemoryExporter(), TracingOptions(sample_rate=0.5)
    lost, own = (trace_id_that(Sampling(options), is_kept=kept) for kept in (False, is_kept))
    own = own if own != lost else f"{int(own, 16) << 64:032x}"  # as far as sampling goes the same

    with Run(exporter, tracing=options) as run:
        with run.trace("lost", trace_id=lost, step=3), run.span("own", trace_id=own) as span, run.span("child"):
            pass
        with run.trace("lost too", trace_id=lost):
            pass

    rows = {str(row["name"]): row for row in exporter.rows("spans")}
    assert set(rows) == ({"own", "child"} if is_kept else set())
    assert left_out(exporter) == expected
    if is_kept:
        assert (rows["own"]["parent_span_id"], rows["own"]["path"], rows["own"]["step"]) == (0, "own", None)
        assert rows["child"]["parent_span_id"] == span.id


def test_a_trace_that_begins_inside_a_full_one_is_kept_and_takes_no_room_there() -> None:
    exporter = MemoryExporter()

    with (
        Run(exporter, tracing=TracingOptions(max_spans_per_trace=1)) as run,
        run.trace("root"),
        run.span("own", trace_id="a" * 32) as own,
        run.span("of a full one"),
    ):
        pass
    with Run(exporter, tracing=TracingOptions(max_spans_per_trace=2)) as run, run.trace("next"):
        with run.span("own too", trace_id="b" * 32):
            pass
        with run.span("has room"), run.span("of a full one"):
            pass

    rows = {str(row["name"]): row for row in exporter.rows("spans")}
    assert set(rows) == {"root", "own", "next", "own too", "has room"}
    assert (rows["own"]["span_id"], rows["own"]["parent_span_id"]) == (own.id, 0)
    assert left_out(exporter) == {"budget": 2}


def test_a_trace_that_begins_inside_a_span_that_is_left_out_takes_nothing_over() -> None:
    exporter = MemoryExporter()

    with (
        Run(exporter, tracing=TracingOptions(sample_by_kind={"tool": 0.0})) as run,
        run.trace("lost", kind="tool", step=3),
        run.span("own", trace_id="a" * 32),
    ):
        pass

    (row,) = exporter.rows("spans")
    assert (row["name"], row["step"], row["parent_span_id"]) == ("own", None, 0)
    assert left_out(exporter) == {"sampled": 1}


def test_a_count_that_was_stated_before_it_is_taken_back_is_settled_with_the_next_one() -> None:
    counts = LeftOut()
    counts.note(GapCause.SAMPLED)
    assert counts.take() == {GapCause.SAMPLED: 1}

    counts.take_back(GapCause.SAMPLED)
    assert not counts.take()
    counts.note(GapCause.SAMPLED)
    counts.note(GapCause.BUDGET)
    assert counts.take() == {GapCause.BUDGET: 1}
