"""A span as training code makes it, and the row it becomes."""

import asyncio
import threading
from typing import cast

import pytest

from rankscope import Run
from rankscope._tracing_options import TracingOptions
from rankscope.testing import CountingIds, ManualClock, MemoryExporter
from rankscope_proto.names import SPAN_FLAGS, SpanKind, SpanStatus


def spans_of(exporter: MemoryExporter) -> dict[object, dict[str, object]]:
    return {row["name"]: row for row in exporter.rows("spans")}


def size_of(attributes: object) -> int:
    """Bytes of all keys and values, but for what says what was dropped."""
    kept = {key: value for key, value in cast("dict[str, str]", attributes).items() if key != "rankscope.dropped"}
    return sum(len(key.encode()) + len(value.encode()) for key, value in kept.items())


def test_a_span_has_ids_times_kind_and_status() -> None:
    exporter, clock = MemoryExporter(), ManualClock(wall_ns=1_700_000_000_000_000_000)

    with Run(exporter, clock=clock, ids=CountingIds()) as run, run.span("load", kind="dataset"):
        clock.advance(5_000)

    (row,) = exporter.rows("spans")
    assert (row["span_id"], row["trace_hi"], row["trace_lo"], row["parent_span_id"]) == (1, 0, 1, 0)
    assert (row["kind"], row["status"]) == (SpanKind.DATASET.code, SpanStatus.OK.code)
    assert (row["start"], row["duration"]) == (1_700_000_000_000_000_001, 5_000)
    assert (row["path"], row["depth"], row["step"]) == ("load", 0, None)


def test_a_duration_is_monotonic_though_the_wall_clock_is_set_back() -> None:
    exporter, clock = MemoryExporter(), ManualClock()

    with Run(exporter, clock=clock) as run, run.span("a"):
        clock.advance(7)

    assert exporter.rows("spans")[0]["duration"] == 7


def test_a_child_belongs_to_the_innermost_open_span() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.trace("rollout", kind="rollout", step=4, thread_id="t", rollout_id="r") as root:
        with run.span("turn"), run.span("call", kind="tool"):
            pass
        with root.span("score", kind="reward"):
            pass

    rows = spans_of(exporter)
    assert rows["call"]["parent_span_id"] == rows["turn"]["span_id"]
    assert rows["score"]["parent_span_id"] == rows["turn"]["parent_span_id"] == rows["rollout"]["span_id"]
    assert {(row["trace_hi"], row["trace_lo"]) for row in rows.values()} == {(root.trace_hi, root.trace_lo)}
    assert {(row["step"], row["thread_id"], row["rollout_id"]) for row in rows.values()} == {(4, "t", "r")}
    assert rows["call"]["path"] == "rollout/turn/call"
    assert rows["call"]["depth"] == 2


def test_a_path_escapes_what_separates_its_names() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a/b"), run.span("50%"):
        pass

    assert spans_of(exporter)["50%"]["path"] == "a%2Fb/50%25"


def test_numbers_go_to_the_numeric_map_and_everything_else_becomes_text() -> None:
    exporter = MemoryExporter()
    attributes = {"env": "CartPole", "n": 3, "x": float("-inf"), "ok": True, "shape": (2, 3), "huge": 10**400}

    with Run(exporter) as run, run.span("a", attributes=attributes) as span:
        span.add_attributes({"late": 1.5})
        span.log_metric("reward", 2)

    (row,) = exporter.rows("spans")
    assert row["attributes"] == {"env": "CartPole", "ok": "true", "shape": "[2,3]"}
    assert row["numbers"] == {"n": 3.0, "x": float("-inf"), "huge": float("inf"), "late": 1.5}
    assert row["metrics"] == {"reward": 2.0}


def test_attributes_are_taken_as_they_are_when_given() -> None:
    exporter, attributes = MemoryExporter(), {"a": "before"}

    with Run(exporter) as run, run.span("a", attributes=attributes):
        attributes["a"] = "after"

    assert exporter.rows("spans")[0]["attributes"] == {"a": "before"}


def test_an_object_without_text_does_not_reach_training() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("mute")

    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a", attributes={"a": Mute()}) as span:
        span.log_metric("m", Mute())  # pyright: ignore[reportArgumentType]  # what untyped code may do

    (row,) = exporter.rows("spans")
    assert "Mute" in str(row["attributes"])
    assert row["metrics"] == {}
    assert run.faults


def test_an_exception_marks_the_span_and_goes_on() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, pytest.raises(KeyError), run.span("outer"), run.span("inner"):
        raise KeyError("secret")

    for row in exporter.rows("spans"):
        assert (row["status"], row["error_type"], row["error_preview"]) == (SpanStatus.ERROR.code, "KeyError", "")


def test_an_interrupt_marks_the_span_interrupted() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, pytest.raises(KeyboardInterrupt), run.span("a"):
        raise KeyboardInterrupt

    (row,) = exporter.rows("spans")
    assert (row["status"], row["flags"]) == (SpanStatus.INTERRUPTED.code, SPAN_FLAGS["interrupted"])


def test_a_started_span_ends_by_hand_and_only_once() -> None:
    exporter, clock = MemoryExporter(), ManualClock()

    with Run(exporter, clock=clock) as run:
        span = run.start_span("wait")
        clock.advance(3)
        with run.span("meanwhile"):
            pass
        span.finish()
        span.finish(error=ValueError())

    rows = spans_of(exporter)
    assert (rows["wait"]["duration"], rows["wait"]["status"]) == (3, SpanStatus.OK.code)
    assert rows["meanwhile"]["parent_span_id"] == 0
    assert len(exporter.rows("spans")) == 2


def test_ids_and_links_can_be_given_to_stitch_over_processes() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("near") as near:
        far = run.start_span("far", trace_id="0" * 31 + "a", span_id="b" * 16, parent_span_id="c" * 16, links=[near])
        far.finish()

    row = spans_of(exporter)["far"]
    assert (row["trace_hi"], row["trace_lo"]) == (0, 10)
    assert (row["span_id"], row["parent_span_id"]) == (int("b" * 16, 16), int("c" * 16, 16))
    assert (row["link_trace_hi"], row["link_span_id"]) == ([near.trace_hi], [near.id])
    assert (far.trace_id, far.span_id) == ("0" * 31 + "a", "b" * 16)


def test_a_wrong_kind_names_the_choices() -> None:
    with Run(MemoryExporter()) as run, pytest.raises(ValueError, match=r"rollout, env_step, .*custom, not 'banana'"):
        run.span("a", kind="banana")


@pytest.mark.parametrize("step", [-1, 1.5, "3", True, 2**63])
def test_a_wrong_step_is_said_at_once(step: int) -> None:
    with Run(MemoryExporter()) as run:
        with pytest.raises(ValueError, match="a step is a whole number"):
            run.step(step)
        with pytest.raises(ValueError, match="a step is a whole number"):
            run.span("a", step=step)
        with pytest.raises(ValueError, match="a step is a whole number"):
            run.log_metric("a", 1, step=step)


@pytest.mark.parametrize("trace_id", ["", "0" * 32, "g" * 32, "a" * 31, 5])
def test_a_wrong_id_is_said_at_once(trace_id: str) -> None:
    with Run(MemoryExporter()) as run, pytest.raises(ValueError, match="32 hex digits"):
        run.span("a", trace_id=trace_id)


def test_an_unknown_field_names_the_known_ones() -> None:
    with Run(MemoryExporter()) as run, pytest.raises(TypeError, match="rollout_id"):
        run.span("a", episode=3)  # pyright: ignore[reportCallIssue]  # what untyped code may do


def test_what_is_too_long_is_cut_and_flagged() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        with run.span("ä" * 400):
            pass
        with run.span("wide", attributes={"a": "x" * 20_000, "b": "ä" * 20_000}):
            pass
        with run.span("counted", metrics={f"m{index:06}": 1.0 for index in range(5_000)}):
            pass
        with run.span("n" * 512, attributes={"a": "x" * 32_000}):
            pass

    name, wide, counted, whole = exporter.rows("spans")
    assert len(str(name["name"]).encode()) == 512
    assert size_of(wide["attributes"]) == 32_768
    assert len(cast("dict[str, float]", counted["metrics"])) == 16_384 // 15
    assert [row["flags"] for row in (name, wide, counted, whole)] == [SPAN_FLAGS["truncated"]] * 3 + [0]


def test_text_that_utf8_cannot_carry_is_kept_otherwise() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a\ud800", attributes={"k\udfff": "v\ud800"}):
        pass

    (row,) = exporter.rows("spans")
    assert (row["name"], row["attributes"]) == ("a?", {"k?": "v?"})


def test_tasks_do_not_see_each_others_spans() -> None:
    exporter = MemoryExporter()

    async def turn(run: Run, name: str) -> None:
        with run.span(name):
            await asyncio.sleep(0)
            with run.span(f"{name}.inner"):
                await asyncio.sleep(0)

    async def both(run: Run) -> None:
        await asyncio.gather(turn(run, "a"), turn(run, "b"))

    with Run(exporter) as run:
        asyncio.run(both(run))

    rows = spans_of(exporter)
    assert rows["a.inner"]["parent_span_id"] == rows["a"]["span_id"]
    assert rows["b.inner"]["parent_span_id"] == rows["b"]["span_id"]


def test_a_thread_begins_with_no_open_span() -> None:
    exporter = MemoryExporter()

    def other(run: Run) -> None:
        with run.span("other"):
            pass

    with Run(exporter) as run, run.span("main"):
        thread = threading.Thread(target=other, args=(run,))
        thread.start()
        thread.join()

    assert spans_of(exporter)["other"]["parent_span_id"] == 0


def test_a_generator_closed_elsewhere_still_ends_its_span() -> None:
    exporter = MemoryExporter()

    def items(run: Run):
        with run.span("stream"):
            yield 1

    with Run(exporter) as run:
        generator = items(run)
        next(generator)
        thread = threading.Thread(target=generator.close)
        thread.start()
        thread.join()

    (row,) = exporter.rows("spans")
    assert (row["name"], row["status"]) == ("stream", SpanStatus.INTERRUPTED.code)


def test_a_change_after_the_end_is_not_kept_and_counted() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        with run.span("a") as span:
            pass
        span.add_attributes({"late": 1})
        span.log_metric("late", 1)

    assert exporter.rows("spans")[0]["numbers"] == {}
    assert sum(run.faults.values()) == 2


def test_a_step_may_be_any_whole_number_type() -> None:
    class Whole:  # as numpy's integers are
        def __index__(self) -> int:
            return 3

    exporter = MemoryExporter()

    with Run(exporter) as run, run.step(Whole(), Whole()):  # pyright: ignore[reportArgumentType]
        pass

    (row,) = exporter.rows("spans")
    assert (row["step"], row["microstep"]) == (3, 3)


def test_spans_fill_a_ring_no_further_than_its_capacity() -> None:
    exporter = MemoryExporter(room=0)
    run = Run(exporter, tracing=TracingOptions(ring_rows=100))
    recording = run._recording  # pyright: ignore[reportPrivateUsage]  # what waits
    most = 0

    for _ in range(5_000):
        with run.span("a"):
            pass
        most = max(most, recording.ring.rows())
    exporter.room = None
    run.finish()

    assert most <= 100
    lost = sum(int(str(row["count"])) for row in exporter.rows("gaps"))
    assert len(exporter.rows("spans")) + lost == 5_000
