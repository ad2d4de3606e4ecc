"""Steps: the trace that all ranks share."""

from rankscope import Run
from tests.fundamentals.conftest import Recorded


def test_a_step_is_the_root_of_a_trace(run: Run, recorded: Recorded) -> None:
    """Phases and spans inside it are its children."""
    with run.step(3) as step, step.phase("forward"), run.span("attention"):
        pass

    spans = recorded()
    spans.assert_tree("""
        step
          forward
            attention
    """)
    assert spans.one("attention").step == 3


def test_a_trace_inside_a_step_is_linked_to_it(run: Run, recorded: Recorded) -> None:
    """It is a tree of its own that knows its step."""
    with run.step(3), run.trace("eval rollout", kind="rollout"):
        pass

    spans = recorded()
    rollout, step = spans.one("eval rollout"), spans.one("step")
    assert rollout.step == 3
    assert list(rollout.links) == [(step.trace_id, step.span_id)]
