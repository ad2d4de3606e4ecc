"""Halves of spans become whole ones: whatever order they come in, whatever is missing, each is written once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rankscope.spool import spools
from rankscope_proto.names import SPAN_FLAGS, SpanKind, SpanStatus
from tests.agent.front.clients import BEGIN_NS, CHILD, SPAN, TRACE, Fronted, S, at, event, whole
from tests.agent.spooled import assert_exact, batches_of, is_ended, rows_in

DAY_S = 24 * 3600


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Fronted]:
    running = Fronted(tmp_path / "spool")
    yield running
    running.book.close()


def one(rows: list[dict[str, object]]) -> dict[str, Any]:
    (row,) = rows
    return row


def test_a_span_whose_halves_come_apart_is_written_when_both_are_here(front: Fronted) -> None:
    started, finished = whole(rank=3, step=42, rollout_id="g2")

    front.send(started)
    before = front.written(after_s=3600)
    front.send(finished)
    row = one(front.written())

    assert before == []
    assert row["name"] == "rollout episode 42"
    assert row["kind"] == SpanKind.ROLLOUT.code
    assert row["status"] == SpanStatus.OK.code
    assert f"{row['trace_hi']:016x}{row['trace_lo']:016x}" == TRACE
    assert f"{row['span_id']:016x}" == SPAN
    assert (row["start"], row["duration"]) == (BEGIN_NS, 2 * S)
    assert (row["stated_rank"], row["step"], row["rollout_id"]) == (3, 42, "g2")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (2, 1, 0), (1, 2, 0)])
def test_the_order_in_which_events_come_changes_nothing(order: tuple[int, ...], front: Fronted) -> None:
    events = [
        event(1, "started", attributes={"env": "CartPole"}, started_at=at(-1)),
        event(2, "updated", attributes={"env": "CartPole", "try": 2}, metrics={"reward": 0.5}),
        event(3, "finished", attributes={"env": "CartPole", "try": 3}, ended_at=at(2), name="rollout, ended"),
    ]

    for number in order:
        front.send(events[number])
    row = one(front.written())

    assert row["attributes"] == {"env": "CartPole"}
    assert row["numbers"] == {"try": 3}
    assert row["metrics"] == {"reward": 0.5}
    assert row["name"] == "rollout, ended"
    assert (row["start"], row["duration"]) == (BEGIN_NS - S, 3 * S)


def test_a_closed_span_waits_a_moment_for_what_came_before_its_end(front: Fronted) -> None:
    started, finished = whole()
    del started["parent_span_id"]

    front.send(finished)
    at_once = front.written()
    front.send({**started, "started_at": at(-5)})
    row = one(front.written())

    assert at_once == []
    assert (row["start"], row["duration"]) == (BEGIN_NS - 5 * S, 7 * S)


def test_an_end_without_a_beginning_is_a_span_too(front: Fronted) -> None:
    front.send(event(7, "exception", error_type="ValueError", ended_at=at(1)))

    row = one(front.written(after_s=10))

    assert (row["status"], row["error_type"], row["duration"]) == (SpanStatus.ERROR.code, "ValueError", S)


def test_a_span_that_states_all_in_one_event_is_written_at_once(front: Fronted) -> None:
    front.send(event(1, "finished", ended_at=at(1)))

    assert len(front.written()) == 1


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("finished", "ok", SpanStatus.OK),
        ("finished", "running", SpanStatus.OK),
        ("exception", "error", SpanStatus.ERROR),
        ("interrupted", "cancelled", SpanStatus.CANCELLED),
        ("interrupted", "interrupted", SpanStatus.INTERRUPTED),
    ],
)
def test_how_a_span_ended_is_what_its_last_closing_event_says(
    kind: str, status: str, expected: SpanStatus, front: Fronted
) -> None:
    front.send(event(1, "started"), event(2, kind, status=status, ended_at=at(1)))

    row = one(front.written())

    assert row["status"] == expected.code
    assert bool(row["flags"] & SPAN_FLAGS["interrupted"]) == (expected is SpanStatus.INTERRUPTED)


def test_an_update_that_is_numbered_behind_the_end_does_not_open_the_span_again(front: Fronted) -> None:
    front.send(event(1, "started"), event(2, "finished", ended_at=at(1)), event(3, "updated", metrics={"reward": 1}))

    row = one(front.written())

    assert (row["status"], row["metrics"]) == (SpanStatus.OK.code, {"reward": 1.0})


def test_a_span_of_which_nothing_is_heard_for_a_day_ends_interrupted_when_it_was_last_heard_of(front: Fronted) -> None:
    front.send(event(1, "started"))
    front.clock.advance(30 * S)
    front.send(event(2, "updated", metrics={"reward": 1}))

    before = front.written(after_s=DAY_S - 1)
    row = one(front.written(after_s=1))

    assert before == []
    assert row["status"] == SpanStatus.INTERRUPTED.code
    assert row["flags"] & SPAN_FLAGS["interrupted"]
    assert (row["start"], row["duration"]) == (BEGIN_NS, 90 * S)
    assert front.written(after_s=DAY_S) == [row]


def test_what_comes_for_a_span_that_is_written_is_said_not_to_be_kept(front: Fronted) -> None:
    front.send(*whole())
    front.written()

    answer = front.send(event(3, "updated", metrics={"reward": 1}), *whole(CHILD))

    assert answer["inserted"] == 2
    assert answer["warnings"] == ["1 event came after the span was written, and not kept"]
    assert len(front.written()) == 2


def test_an_event_that_comes_twice_under_two_keys_counts_once(front: Fronted) -> None:
    started, finished = whole()

    first = front.send(started)
    second = front.send(started, finished)

    assert (first["inserted"], second["inserted"]) == (1, 1)
    assert len(front.written()) == 1


def test_the_same_ids_in_another_run_are_another_span(front: Fronted) -> None:
    front.send(*whole(), run="a")
    front.send(*whole(), run="b")

    assert len(front.written()) == 2
    assert {batch.header.run_id for folder in spools(front.root) for batch in batches_of(folder)} == {"a", "b"}


def test_a_child_knows_its_ancestors_while_they_are_open_and_after(front: Fronted) -> None:
    front.send(
        event(1, "started", name="rollout/42"), event(1, "started", span=CHILD, parent_span_id=SPAN, name="policy")
    )
    front.send(event(2, "finished", span=CHILD, name="policy", ended_at=at(1)))
    front.written()
    front.send(event(2, "finished", name="rollout/42", ended_at=at(2)))
    front.written()
    front.send(*whole("00f067aa0ba902b9", parent_span_id=CHILD, name="late"))

    rows = {str(row["name"]): row for row in front.written()}

    assert rows["policy"]["path"] == "rollout%2F42/policy"
    assert rows["late"]["path"] == "rollout%2F42/policy/late"
    assert [rows[name]["depth"] for name in ("rollout/42", "policy", "late")] == [0, 1, 2]
    assert rows["policy"]["parent_span_id"] == int(SPAN, 16)


@pytest.mark.parametrize(("step", "kept"), [(1.5, 1.5), (-1, -1.0), (1e300, 1e300)])
def test_a_step_that_is_no_whole_number_from_0_on_is_a_numeric_attribute(
    step: float, kept: float, front: Fronted
) -> None:
    front.send(*whole(step=step, attributes={"lr": 0.1}))

    row = one(front.written())

    assert row["step"] is None
    assert row["numbers"] == {"lr": 0.1, "step": kept}


def test_42_point_0_is_step_42(front: Fronted) -> None:
    front.send(*whole(step=42.0))

    assert one(front.written())["step"] == 42


def test_nothing_of_attributes_metrics_and_links_is_lost_for_its_type(front: Fronted) -> None:
    other = {"trace_id": TRACE.upper(), "span_id": CHILD}
    front.send(
        *whole(
            attributes={"flag": True, "none": None, "tags": ["a", "b"], "n": 2, "text": "x"},
            metrics={"reward": 1, "loss": "NaN", "note": "good", "nested": {"a": 1}},
            links=[other, {"trace_id": TRACE, "why": "retry"}],
        )
    )

    row = one(front.written())

    assert row["numbers"] == {"n": 2.0}
    assert row["attributes"]["flag"] == "true"
    assert row["attributes"]["none"] == "null"
    assert row["attributes"]["tags"] == '["a","b"]'
    assert row["attributes"]["text"] == "x"
    assert row["attributes"]["metrics.note"] == "good"
    assert row["attributes"]["metrics.nested"] == '{"a":1}'
    assert "retry" in row["attributes"]["links"]
    assert row["metrics"]["reward"] == 1.0
    assert row["metrics"]["loss"] != row["metrics"]["loss"]
    assert row["link_span_id"] == [int(CHILD, 16), 0]


def test_a_list_that_is_cut_marks_the_span(front: Fronted) -> None:
    front.send(*whole(attributes={"ids": list(range(5_000))}))

    row = one(front.written())

    assert row["attributes"]["ids"].startswith("[0,1,2,")
    assert row["flags"] & SPAN_FLAGS["truncated"]


def test_spans_with_the_longest_paths_go_into_batches_that_are_taken(front: Fronted) -> None:
    spans = [f"{number:016x}" for number in range(1, 1_201)]
    parents = [None, *spans[:4], *[spans[4]] * 1_200]
    names = [f"{'n' * 500}{number}" for number in range(1_200)]
    for first in range(0, 1_200, 250):
        few = zip(spans[first : first + 250], parents[first:], names[first:], strict=False)
        front.send(*[event for span, parent, name in few for event in whole(span, parent_span_id=parent, name=name)])

    rows = front.written()

    assert len(rows) == 1_200
    assert rows_in(front.root, "gaps") == []


def test_a_thread_that_is_named_as_its_trace_is_no_thread(front: Fronted) -> None:
    front.send(*whole(thread_id=TRACE), *whole(CHILD, thread_id="session 1"))

    assert {row["thread_id"] for row in front.written()} == {"", "session 1"}


def test_every_row_emitted_is_stored_and_the_stream_ends_in_order(front: Fronted) -> None:
    for number in range(1, 40):
        front.send(*whole(f"{number:016x}"))
        front.written()
    front.send(event(1, "started"))
    front.close()

    (folder,) = spools(front.root)
    assert assert_exact(batches_of(folder))["spans"] == 39
    assert is_ended(folder)


def test_an_open_half_waits_for_the_next_process(front: Fronted) -> None:
    started, finished = whole()
    front.send(started)
    front.close()

    front.open()
    front.send(finished)

    assert len(front.written()) == 1


def test_what_is_open_is_said_with_each_heartbeat(front: Fronted) -> None:
    front.send(event(1, "started"), event(1, "started", span=CHILD, parent_span_id=SPAN, name="policy", kind="model"))
    front.written()

    row = one(rows_in(front.root, "open_spans"))

    assert row["stack_name"] == ["rollout episode 42", "policy"]
    assert row["stack_span_id"] == [int(SPAN, 16), int(CHILD, 16)]
    assert row["stack_kind"] == [SpanKind.ROLLOUT.code, SpanKind.MODEL.code]
    assert [f"{high:016x}" for high in row["stack_trace_hi"]] == [TRACE[:16]] * 2
    assert row["heartbeat"] == front.clock.wall_ns()


def test_what_begins_and_ends_is_said_within_a_second_and_then_now_and_then(front: Fronted) -> None:
    front.written()
    front.send(event(1, "started"))
    front.written(after_s=1)
    front.written(after_s=1)
    front.written(after_s=5)
    front.send(whole()[1])
    front.written(after_s=1)
    front.written(after_s=30)

    said = [len(cast("list[int]", row["stack_span_id"])) for row in rows_in(front.root, "open_spans")]

    assert said == [1, 1, 0]


def test_a_run_of_which_nothing_is_heard_ends_its_stream_and_begins_another_when_it_is(front: Fronted) -> None:
    front.send(*whole())
    front.written()
    front.written(after_s=120)
    (first,) = spools(front.root)

    front.send(*whole(CHILD))
    front.written()

    assert is_ended(first)
    assert len(spools(front.root)) == 2
    launches = {batch.header.launch_id for folder in spools(front.root) for batch in batches_of(folder)}
    assert len(launches) == 1


def test_old_answers_and_written_spans_are_forgotten_after_a_day(front: Fronted) -> None:
    first = front.send(*whole(), key="k")
    front.written()

    again = front.send(*whole(), key="other")
    front.written(after_s=DAY_S + 60)
    later = front.send(*whole(), key="k")

    assert (first["inserted"], again["inserted"], later["inserted"]) == (2, 0, 2)
