"""The fields of a span: what each takes, what children take over, what a wrong one gets."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
import torch

from rankscope import Run, Span
from rankscope.testing import MemoryExporter
from rankscope_proto.names import SPAN_FLAGS

MAKERS: dict[str, Callable[[Run], Callable[..., Span]]] = {
    "run.trace": lambda run: run.trace,
    "run.span": lambda run: run.span,
    "run.start_span": lambda run: run.start_span,
    "span.span": lambda run: run.trace("root").span,
    "span.start_span": lambda run: run.trace("root").start_span,
}

WRONG: dict[str, tuple[dict[str, object], type[Exception], str]] = {
    "kind": ({"kind": "banana"}, ValueError, "rollout, env_step.*custom, not 'banana'"),
    "kind of another type": ({"kind": 5}, TypeError, "kind is a text"),
    "name of another type": ({"name": b"a"}, TypeError, "a name is a text, not a bytes"),
    "empty name": ({"name": ""}, ValueError, "at least one character"),
    "blank name": ({"name": " \n "}, ValueError, "at least one character"),
    "negative step": ({"step": -1}, ValueError, "a step is a whole number"),
    "broken step": ({"step": 1.5}, ValueError, "a step is a whole number"),
    "true step": ({"step": True}, ValueError, "a step is a whole number"),
    "step that is no number": ({"step": float("nan")}, ValueError, "a step is a whole number"),
    "negative rank": ({"rank": -1}, ValueError, "a rank is from 0"),
    "true rank": ({"rank": True}, TypeError, "a rank is a whole number"),
    "rank as text": ({"rank": "3"}, TypeError, "a rank is a whole number"),
    "capture": ({"capture": "full"}, ValueError, "off, preview, not 'full'"),
    "capture of another type": ({"capture": True}, TypeError, "capture is a text"),
    "short trace id": ({"trace_id": "a" * 31}, ValueError, "32 hex digits"),
    "zero trace id": ({"trace_id": "0" * 32}, ValueError, "32 hex digits"),
    "span id that is no hex": ({"span_id": "g" * 16}, ValueError, "16 hex digits"),
    "span id with a prefix": ({"span_id": "0x23456789abcdef"}, ValueError, "16 hex digits"),
    "trace id with a sign": ({"trace_id": "+" + "a" * 31}, ValueError, "32 hex digits"),
    "parent of another length": ({"parent_span_id": "a" * 32}, ValueError, "16 hex digits"),
    "linked id": ({"links": [("a" * 32, "b" * 15)]}, ValueError, "16 hex digits"),
    "unknown field": ({"episode": 3}, TypeError, "no field 'episode'.*rollout_id"),
}


def row_of(exporter: MemoryExporter, name: str) -> dict[str, object]:
    (row,) = [row for row in exporter.rows("spans") if row["name"] == name]
    return row


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS.keys())
@pytest.mark.parametrize(("given", "error", "text"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_field_is_said_at_the_call(
    maker: Callable[[Run], Callable[..., Span]], given: dict[str, object], error: type[Exception], text: str
) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, pytest.raises(error, match=text):
        maker(run)(**{"name": "a", **given})

    assert not exporter.rows("spans")


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS.keys())
def test_every_maker_takes_every_field(maker: Callable[[Run], Callable[..., Span]]) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        span = maker(run)(
            "a",
            kind="Tool",
            step=42.0,
            rank=7,
            thread_id="t",
            rollout_id="r",
            attributes={"env": "x"},
            metrics={"reward": 1},
            links=[("a" * 32, "b" * 16)],
            capture="preview",
            inputs={"x": 1},
            trace_id="A" * 32,
            span_id="C" * 16,
        )
        with span:
            pass

    row = row_of(exporter, "a")
    assert (row["step"], row["stated_rank"], row["thread_id"], row["rollout_id"]) == (42, 7, "t", "r")
    assert (row["attributes"], row["metrics"], row["inputs"]) == ({"env": "x"}, {"reward": 1.0}, '{"x":1}')
    assert (span.trace_id, span.span_id, row["parent_span_id"]) == ("a" * 32, "c" * 16, 0)
    assert row["link_span_id"] == [int("b" * 16, 16)]


def test_fields_that_are_none_are_as_if_they_were_not_given() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.trace("root", step=3, rank=1, thread_id="t", rollout_id="r") as root:
        root.start_span("a", step=None, rank=None, thread_id=None, rollout_id=None, links=None, metrics=None).finish()

    row = row_of(exporter, "a")
    assert (row["step"], row["stated_rank"], row["thread_id"], row["rollout_id"]) == (3, 1, "t", "r")


def test_children_take_over_what_is_theirs_and_their_own_word_does_not_reach_their_parent() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.trace("root", step=3, rank=5, thread_id="t", rollout_id="r") as root:
        with root.span("own", step=4, rank=6, rollout_id="s"), run.span("under"):
            pass
        with run.span("plain"):
            pass

    seen = {row["name"]: (row["step"], row["stated_rank"], row["rollout_id"]) for row in exporter.rows("spans")}
    assert seen == {"root": (3, 5, "r"), "plain": (3, 5, "r"), "own": (4, 6, "s"), "under": (4, 6, "s")}


def test_the_rank_of_the_process_needs_no_word_of_its_own() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        for name, rank in (("own", run.rank), ("other", run.rank + 1)):
            with run.span(name, rank=rank):
                pass

    assert [row["stated_rank"] for row in exporter.rows("spans")] == [None, 1]


def test_spans_with_and_without_step_and_rank_lie_in_one_batch() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        for name, fields in (("a", {}), ("b", {"step": 1}), ("c", {"rank": 2}), ("d", {"step": 3, "rank": 4})):
            with run.span(name, **cast("Any", fields)):
                pass

    seen = [(row["step"], row["stated_rank"]) for row in exporter.rows("spans")]
    assert seen == [(None, None), (1, None), (None, 2), (3, 4)]


def test_another_trace_id_than_the_parents_begins_a_tree_of_its_own() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.trace("root", rollout_id="r") as root:
        with run.span("same", trace_id=root.trace_id):
            pass
        with run.span("elsewhere", trace_id="a" * 32):
            pass
        with run.span("stitched", trace_id="a" * 32, parent_span_id="b" * 16):
            pass

    assert row_of(exporter, "same")["parent_span_id"] == root.id
    elsewhere, stitched = row_of(exporter, "elsewhere"), row_of(exporter, "stitched")
    assert (elsewhere["parent_span_id"], elsewhere["depth"], elsewhere["rollout_id"]) == (0, 0, "")
    assert (stitched["parent_span_id"], stitched["path"]) == (int("b" * 16, 16), "stitched")


def test_a_parent_in_another_process_is_named_by_its_id() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.trace("root", thread_id="t") as root:
        with run.span("child", parent_span_id="b" * 16):
            pass
        with root.span("own", parent_span_id=root.span_id):
            pass

    child = row_of(exporter, "child")
    assert (child["parent_span_id"], child["trace_lo"], child["thread_id"]) == (int("b" * 16, 16), root.trace_lo, "t")
    assert row_of(exporter, "own")["path"] == "root/own"


def test_links_are_taken_in_every_form() -> None:
    exporter = MemoryExporter()
    ids = {"trace_id": "a" * 32, "span_id": "b" * 16}

    with Run(exporter) as run, run.span("near") as near:
        links = [near, {**ids, "run_id": "x", "rank": 3}, {"trace_id": "c" * 32}, ("d" * 32, "e" * 16)]
        with run.span("many", links=links) as many:
            many.add_link(ids)
        with run.span("one", links=near):
            pass

    expected = [near.id, int("b" * 16, 16), 0, int("e" * 16, 16), int("b" * 16, 16)]
    assert row_of(exporter, "many")["link_span_id"] == expected
    assert row_of(exporter, "one")["link_span_id"] == [near.id]


def test_the_257th_link_is_left_out_and_said() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a", links=[("a" * 32, "b" * 16)] * 300) as span:
        span.add_link(("a" * 32, "c" * 16))

    row = row_of(exporter, "a")
    assert len(cast("list[int]", row["link_span_id"])) == 256
    assert (row["flags"], row["attributes"]) == (SPAN_FLAGS["truncated"], {"rankscope.dropped": "links"})


def test_a_trace_in_a_step_is_linked_to_it_and_keeps_its_number_unless_it_names_one() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.step(7) as step:
        with run.trace("a"), run.span("in a"):
            pass
        with run.trace("b", step=2):
            pass

    assert [row_of(exporter, name)["step"] for name in ("a", "in a", "b")] == [7, 7, 2]
    assert row_of(exporter, "a")["link_span_id"] == [step.id]
    assert row_of(exporter, "a")["trace_lo"] != step.trace_lo


def test_what_was_dropped_is_named_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        for _ in range(3):
            attributes = {"model": "x" * 40_000, "after": "y"}
            with run.span("a", attributes=attributes, metrics=cast("Any", {"loss": "high", "lr": 1.0})):
                pass

    row = exporter.rows("spans")[0]
    assert row["flags"] == SPAN_FLAGS["truncated"]
    assert row["metrics"] == {"lr": 1.0}
    dropped = cast("dict[str, str]", row["attributes"])["rankscope.dropped"].split(", ")
    assert {"metrics.loss", "attributes.model"} <= set(dropped)
    assert sum(run.faults.values()) >= 3
    assert len({record.message for record in caplog.records}) == len(caplog.records)


def flagged(exporter: MemoryExporter, name: str = "a") -> str:
    """What the span says that it lost; it has the flag too."""
    row = row_of(exporter, name)
    assert cast("int", row["flags"]) & SPAN_FLAGS["truncated"]
    return cast("dict[str, str]", row["attributes"])["rankscope.dropped"]


def test_what_a_preview_leaves_out_is_named_and_is_no_fault() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        with suppress(ValueError), run.trace("a", capture="preview", inputs="i" * 20_000) as span:
            span.set_output("o" * 9_000)
            raise ValueError("m" * 9_000)
        with run.trace("b", attributes={"l": list(range(100_000))}) as span:
            span.add_event("e", {"v": list(range(100_000))})

    assert set(flagged(exporter).split(", ")) == {"inputs", "outputs", "error_preview"}
    assert set(flagged(exporter, "b").split(", ")) == {"attributes.l", "event.attributes.v"}
    assert not run.faults


def test_every_field_that_lost_something_is_named_with_how_much_more_there_was() -> None:
    exporter = MemoryExporter()
    metrics = {f"metric {number:04}": 1.0 for number in range(3_000)}

    with Run(exporter) as run, run.span("a", attributes={"a": "x" * 40_000, "b": 1}, metrics=metrics):
        pass

    dropped = flagged(exporter).split(", ")
    lost = len(metrics) - len(cast("dict[str, float]", row_of(exporter, "a")["metrics"]))
    assert {"attributes.a", "attributes.b", f"… {lost - 8} more of metrics"} <= set(dropped)
    assert len([name for name in dropped if name.startswith("metrics.")]) == 8
    assert len(dropped) == 11


def least_seconds(work: Callable[[], object]) -> float:
    """Processor time of one call, the least of some."""
    seconds: list[float] = []
    for _ in range(50):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return min(seconds)


@pytest.mark.parametrize("what", ["attributes", "metrics"])
def test_adding_one_by_one_is_not_measured_anew_each_time(what: str) -> None:
    exporter = MemoryExporter()
    entries = {f"k{number}": float(number) for number in range(4_000)}

    with Run(exporter) as run, run.span("a") as span:
        add = span.add_attributes if what == "attributes" else span.log_metric
        for name, value in entries.items():
            add({name: value})
        took = least_seconds(lambda: add({"more": 1.0}))

    kept = cast("dict[str, float]", row_of(exporter, "a")["numbers" if what == "attributes" else what])
    assert list(kept.items()) == list(entries.items())[: len(kept)]
    assert 1_000 < len(kept) < len(entries)
    assert f"more of {what}" in flagged(exporter)
    assert took < 10 * least_seconds(entries.copy) + 20e-6


def test_a_secret_in_the_name_of_what_was_dropped_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    exporter, secret = MemoryExporter(), "gh" + "p_" + "a1B2" * 9

    with Run(exporter) as run, run.span("a", attributes={secret: "x" * 40_000}):
        pass

    assert flagged(exporter) == "attributes.[REDACTED]"
    assert secret not in caplog.text


@pytest.mark.filterwarnings("error")
def test_a_loss_with_gradients_is_a_metric_without_a_warning() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a", metrics=cast("Any", {"loss": torch.ones(1, requires_grad=True)})) as span:
        span.log_metric("later", cast("Any", torch.ones((), requires_grad=True)))

    assert row_of(exporter, "a")["metrics"] == {"loss": 1.0, "later": 1.0}


def test_nothing_says_dropped_where_nothing_was() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a", attributes={"text": "x" * 8_000}, metrics={"nan": float("nan")}):
        pass

    row = row_of(exporter, "a")
    assert (row["flags"], list(cast("dict[str, str]", row["attributes"]))) == (0, ["text"])
    assert str(row["metrics"]) == "{'nan': nan}"


def test_a_name_and_ids_that_are_too_long_are_cut_and_named() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("ä" * 400, thread_id="t" * 600, rollout_id="r" * 513):
        pass

    (row,) = exporter.rows("spans")
    assert [len(str(row[field]).encode()) for field in ("name", "thread_id", "rollout_id")] == [512, 512, 512]
    assert row["attributes"] == {"rankscope.dropped": "name, thread_id, rollout_id"}


def test_attributes_are_changed_and_kept_within_their_bound() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a", attributes={"kept": 1, "changed": "before"}) as span:
        span.add_attributes({"changed": "after", "added": [1, {"b": None}], "none": None, "ok": False})
        span.log_metric("tokens", 3)
        span.log_metric({"tokens": 4, "reward": 0.5})

    row = row_of(exporter, "a")
    expected = {"changed": "after", "added": '[1,{"b":null}]', "none": "null", "ok": "false"}
    assert (row["attributes"], row["numbers"]) == (expected, {"kept": 1.0})
    assert row["metrics"] == {"tokens": 4.0, "reward": 0.5}


def test_an_event_is_a_row_of_its_own_with_the_span_and_its_step() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.trace("root", step=3) as root:
        root.add_event("retry", {"attempt": 2, "why": "timeout", "nan": float("nan"), "more": [1]})
        root.add_event("plain")

    events = [row for row in exporter.rows("events") if row["kind"] == "span_event"]
    assert [(row["name"], row["span_id"], row["trace_lo"], row["step"]) for row in events] == [
        ("retry", root.id, root.trace_lo, 3),
        ("plain", root.id, root.trace_lo, 3),
    ]
    payload = '{"attempt": 2, "why": "timeout", "nan": "NaN", "more": "[1]"}'
    assert [row["payload"] for row in events] == [payload, ""]


@pytest.mark.parametrize(("name", "error"), [(5, TypeError), (" ", ValueError)])
def test_an_event_without_a_name_is_a_mistake(name: object, error: type[Exception]) -> None:
    with Run(MemoryExporter()) as run, run.span("a") as span, pytest.raises(error):
        span.add_event(cast("str", name))


def test_two_spans_of_one_given_id_end_each_by_itself() -> None:
    exporter = MemoryExporter()
    run = Run(exporter)

    first = run.start_span("first", span_id="a" * 16)
    run.start_span("second", span_id="a" * 16)
    first.finish()
    run.finish()

    assert {(row["name"], row["status"]) for row in exporter.rows("spans")} == {("first", 1), ("second", 3)}
