"""Traces: what a span is, how spans nest, what they hold."""

import math

import pytest

from rankscope import Run
from tests.fundamentals.conftest import Recorded


def test_a_trace_is_a_tree_of_named_intervals(run: Run, recorded: Recorded) -> None:
    """`run.trace` opens the root; `span.span` opens a child of it."""
    with run.trace("rollout 42", kind="rollout") as rollout:
        with rollout.span("policy.forward", kind="model"):
            pass
        with rollout.span("env.step", kind="env_step"):
            pass

    recorded().assert_tree("""
        rollout 42
          policy.forward
          env.step
    """)


def test_a_span_opened_inside_another_is_its_child(run: Run, recorded: Recorded) -> None:
    """`run.span` and `run.start_span` look for the innermost span that `with` has opened here."""
    with run.trace("answer"), run.span("search"):
        run.start_span("fetch").finish()

    recorded().assert_tree("""
        answer
          search
            fetch
    """)


def test_run_trace_always_starts_a_tree_of_its_own(run: Run, recorded: Recorded) -> None:
    """A trace inside a trace is another trace."""
    with run.trace("outer"), run.trace("inner"):
        pass

    spans = recorded()
    assert [span.name for span in spans.roots] == ["outer", "inner"]
    assert spans.one("outer").trace_id != spans.one("inner").trace_id


def test_a_child_inherits_what_places_it(run: Run, recorded: Recorded) -> None:
    """Trace, thread, rollout, rank and step come from the parent unless they are given."""
    with run.trace("episode", step=7, rank=3, thread_id="session", rollout_id="r-7") as episode, episode.span("act"):
        pass

    act = recorded().one("act")
    assert (act.step, act.rank, act.thread_id, act.rollout_id) == (7, 3, "session", "r-7")


def test_a_thread_is_its_trace_unless_it_is_named(run: Run, recorded: Recorded) -> None:
    """A thread groups spans, such as those of one session; by default it is the trace."""
    with run.trace("turn") as turn:
        assert turn.thread_id == turn.trace_id

    assert recorded().one("turn").thread_id == turn.trace_id


def test_a_span_holds_labels_numbers_events_and_links(run: Run, recorded: Recorded) -> None:
    """Attributes are for search, metrics for sums; both may be added while the span is open."""
    with run.trace("before") as before:
        pass
    with run.trace("episode", attributes={"env": "CartPole-v1"}, metrics={"reward": 1.0}) as episode:
        episode.add_attributes({"seed": 42})
        episode.log_metric("tokens", 12)
        episode.log_metric({"loss_per_token": math.nan})
        episode.add_event("checkpoint saved", {"path": "a.pt"})
        episode.add_link(before)

    span = recorded().one("episode")
    assert span.attributes == {"env": "CartPole-v1", "seed": 42}
    assert span.metrics == pytest.approx({"reward": 1, "tokens": 12, "loss_per_token": math.nan}, nan_ok=True)
    assert list(span.events) == [("checkpoint saved", {"path": "a.pt"})]
    assert list(span.links) == [(before.trace_id, before.span_id)]


def test_an_exception_goes_on_and_leaves_its_type(run: Run, recorded: Recorded) -> None:
    """The status is `error`; without capture nothing of the message is kept."""
    with pytest.raises(ZeroDivisionError), run.trace("answer"):
        _ = 1 // 0

    span = recorded().one("answer")
    assert (span.status, span.error_type, span.error) == ("error", "ZeroDivisionError", "")


@pytest.mark.parametrize("status", ["ok", "error", "cancelled", "interrupted"])
def test_a_span_that_was_started_ends_with_the_status_it_is_given(run: Run, recorded: Recorded, status: str) -> None:
    """`finish` ends it once; whatever is said later changes nothing."""
    span = run.start_span("answer")
    span.finish(status)
    span.finish("ok")

    assert [span.status for span in recorded().named("answer")] == [status]


def test_a_kind_is_one_of_a_fixed_vocabulary(run: Run) -> None:
    """Kinds are filters: a typing error would make a span that nobody finds."""
    with pytest.raises(ValueError, match="rollout, env_step, model, tool"):
        run.trace("answer", kind="llm")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"rank": -1}, ValueError),
        ({"rank": True}, TypeError),
        ({"step": 1.5}, ValueError),
        ({"trace_id": "12"}, ValueError),
        ({"span_id": "0" * 16}, ValueError),
        ({"capture": "full"}, ValueError),
    ],
)
def test_an_argument_that_cannot_be_meant_raises_at_once(
    run: Run, wrong: dict[str, object], error: type[Exception]
) -> None:
    """These are mistakes of the program, found where they are made."""
    with pytest.raises(error):
        run.trace("answer", **wrong)  # pyright: ignore[reportArgumentType]  # the point of the test


def test_data_that_cannot_be_kept_never_breaks_the_program(run: Run, recorded: Recorded) -> None:
    """The span survives, and says what is missing."""
    with run.trace("answer", metrics={"loss": "n/a", "reward": 1.0}):  # pyright: ignore[reportArgumentType]
        pass

    span = recorded().one("answer")
    assert span.metrics == {"reward": 1.0}
    assert span.attributes["rankscope.dropped"] == "metrics.loss"
