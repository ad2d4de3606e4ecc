"""What holds of every source of live data: a model in this process, a recording, a serving engine.

A source's own test derives from `ProbeContract` and makes its `source`. Every test here asks only what
`RuntimeProbe` promises, and lets the source run step by step.
"""

from itertools import pairwise
from typing import Protocol

import pytest

from rankscope.errors import ConfigError, NotCaptured
from rankscope.probe import (
    CaptureConfiguration,
    EventFilter,
    GapEvent,
    HitEvent,
    NodeKind,
    RuntimeProbe,
    SpanEvent,
    StatisticsEvent,
    Trigger,
)
from rankscope_proto.names import GapCause, Role

NONFINITE = "tensor.nan_count > 0 or tensor.inf_count > 0"
EVERY_STEP = CaptureConfiguration(level=1, every=1)


class Source(Protocol):
    """A source of data that has not made a step yet; it captures at level 1 in every step.

    Attributes:
        probe: What is under test.
        module: Path of a module whose output is looked at in every step.
        tensor: Path of a trained tensor.
    """

    probe: RuntimeProbe
    module: str
    tensor: str

    def advance(self, *, is_ill: bool = False) -> None:
        """Run the next step; if it is ill, an element of the module's output is not finite in it."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class ProbeContract:
    """The tests."""

    # What there is.

    def test_every_node_is_described_once_its_parent_before_it(self, source: Source) -> None:
        nodes = source.probe.describe().nodes

        paths = [node.path for node in nodes]
        assert len(set(paths)) == len(paths)
        assert [node.path for node in nodes if node.parent is None] == paths[:1]
        assert all(node.parent in paths[:place] for place, node in enumerate(nodes) if node.parent is not None)

    def test_a_tensor_is_described_with_its_shape_and_type(self, source: Source) -> None:
        node = source.probe.describe().node(source.tensor)

        assert node.kind is NodeKind.TENSOR
        assert node.shape
        assert node.dtype
        assert {Role.WEIGHT, Role.GRAD} <= {*node.roles}

    def test_a_level_has_all_statistics_of_the_one_before(self, source: Source) -> None:
        description = source.probe.describe()

        assert {*description.statistics} == {*description.levels}
        for lower, higher in pairwise(description.levels):
            assert {*description.statistics[lower]} <= {*description.statistics[higher]}

    # What happens.

    def test_a_subscriber_is_told_in_order_of_time(self, source: Source) -> None:
        with source.probe.subscribe() as events:
            source.advance()
            source.advance()
            source.close()
            told = list(events)

        assert [event.time_ns for event in told] == sorted(event.time_ns for event in told)
        assert {StatisticsEvent, SpanEvent} <= {type(event) for event in told}
        assert {event.step for event in told if isinstance(event, StatisticsEvent)} == {0, 1}

    def test_a_subscriber_is_told_of_what_it_wants_alone(self, source: Source) -> None:
        wanted = EventFilter(nodes=(source.tensor,), roles=(Role.GRAD,), kinds=(StatisticsEvent,))

        with source.probe.subscribe(wanted) as events:
            source.advance()
            source.close()
            told = list(events)

        assert told
        assert {(event.node, event.role) for event in told if isinstance(event, StatisticsEvent)} == {
            (source.tensor, Role.GRAD)
        }
        assert {type(event) for event in told} == {StatisticsEvent}

    def test_a_subscriber_to_a_module_is_told_of_hits_on_its_tensors(self, source: Source) -> None:
        module = source.tensor.rpartition(".")[0]
        source.probe.set_breakpoint(Trigger(node=source.tensor, predicate='tensor.role == "weight" and tensor.l2 > 0'))

        with source.probe.subscribe(EventFilter(nodes=(module,), kinds=(HitEvent,))) as events:
            source.advance()
            source.close()
            told = list(events)

        assert [(event.node, event.module) for event in told if isinstance(event, HitEvent)] == [
            (source.tensor, module)
        ]

    def test_what_finds_no_room_is_counted_and_told_as_a_gap(self, source: Source) -> None:
        with source.probe.subscribe(EventFilter(kinds=(StatisticsEvent,))) as everything:
            slow = source.probe.subscribe(EventFilter(kinds=(StatisticsEvent,), most_waiting=2))
            source.advance()
            source.close()
            all_told, told = list(everything), list(slow)

        assert told[:2] == all_told[:2]
        gap = told[-1]
        assert isinstance(gap, GapEvent)
        assert gap.cause is GapCause.RING_FULL
        assert gap.count == len(all_told) - 2

    def test_a_subscription_that_is_closed_ends_and_takes_no_more(self, source: Source) -> None:
        events = source.probe.subscribe(EventFilter(kinds=(StatisticsEvent,)))
        source.advance()
        events.close()
        source.advance()

        assert {event.step for event in events} == {0}
        assert list(events) == []

    def test_a_filter_that_names_nothing_is_refused_with_the_nearest_path(self, source: Source) -> None:
        with pytest.raises(ConfigError, match=f"did you mean .*{source.tensor}"):
            source.probe.subscribe(EventFilter(nodes=(f"{source.tensor}s",)))

    # Breakpoints.

    @pytest.mark.parametrize("precise", [True, False], ids=["precise", "relaxed"])
    def test_a_breakpoint_fires_in_the_step_in_which_its_condition_holds(
        self, source: Source, *, precise: bool
    ) -> None:
        hits: list[HitEvent] = []
        events = source.probe.subscribe(EventFilter(kinds=(HitEvent,)))
        trigger = Trigger(
            node=source.module, predicate=f'tensor.role == "activation" and ({NONFINITE})', precise=precise
        )
        breakpoint_ = source.probe.set_breakpoint(trigger, callback=hits.append)

        source.advance()
        assert breakpoint_.hits == 0
        source.advance(is_ill=True)
        source.close()

        assert breakpoint_.hits == 1
        assert hits == list(events)
        assert (hits[0].step, hits[0].node, hits[0].role, hits[0].count) == (1, source.module, Role.ACTIVATION, 1)
        assert {"tensor.nan_count", "tensor.inf_count"} <= hits[0].seen.keys()

    def test_a_condition_looks_back_on_every_row_of_its_node(self, source: Source) -> None:
        hits: list[HitEvent] = []
        predicate = 'tensor.role == "grad" and prev(tensor.l2) > 0'
        source.probe.set_breakpoint(Trigger(node=source.tensor, predicate=predicate), callback=hits.append)
        norms = source.probe.subscribe(EventFilter((source.tensor,), (Role.GRAD,), (StatisticsEvent,)))

        for _ in range(3):
            source.advance()
        source.close()

        told = [event.values["l2"] for event in norms if isinstance(event, StatisticsEvent)]
        assert [hit.seen["prev(tensor.l2)"] for hit in hits] == pytest.approx(told[:-1])

    def test_hits_are_ignored_counted_and_end_as_was_asked(self, source: Source) -> None:
        always = 'tensor.role == "weight" and tensor.l2 > 0'
        later = source.probe.set_breakpoint(Trigger(node=source.tensor, predicate=always, ignore=2))
        once = source.probe.set_breakpoint(Trigger(node=source.tensor, predicate=always, once=True))
        off = source.probe.set_breakpoint(Trigger(node=source.tensor, predicate=always))

        off.disable()
        source.advance()
        source.advance()
        off.enable()
        source.advance()
        off.remove()
        source.advance()

        assert (later.hits, once.hits, off.hits) == (2, 1, 1)
        assert (once.is_removed, off.is_removed, off.is_enabled) == (True, True, False)

    def test_a_condition_that_cannot_be_judged_is_refused_with_its_place(self, source: Source) -> None:
        trigger = Trigger(node=source.module, predicate="tensor.nan_coutn > 0")

        with pytest.raises(ConfigError) as refused:
            source.probe.set_breakpoint(trigger)

        assert "\n  tensor.nan_coutn > 0\n  ^^^^" in str(refused.value)
        assert "did you mean tensor.nan_count?" in str(refused.value)

    # Values and configurations.

    def test_values_that_were_asked_for_are_those_of_the_next_step(self, source: Source) -> None:
        source.advance()
        handle = source.probe.capture([source.tensor], roles=[Role.WEIGHT])
        assert not handle.is_done

        source.advance()
        source.close()

        (tensor,) = handle.result(1.0)
        node = source.probe.describe().node(source.tensor)
        assert (tensor.name, tensor.role, tensor.step) == (source.tensor, Role.WEIGHT, 1)
        assert (tensor.shape, tensor.dtype) == (node.shape, node.dtype)
        assert len(tensor.digest()) == 32

    def test_values_of_a_step_that_is_over_are_not_captured(self, source: Source) -> None:
        source.advance()
        handle = source.probe.capture([source.tensor], step=0)

        assert handle.is_done
        assert "step 0 is over" in handle.reason
        with pytest.raises(NotCaptured, match="step 0 is over"):
            handle.result(1.0)

    def test_another_configuration_holds_from_its_step_on(self, source: Source) -> None:
        events = source.probe.subscribe(EventFilter((source.tensor,), kinds=(StatisticsEvent,)))
        source.probe.configure(CaptureConfiguration(level=0), from_step=1)

        for _ in range(3):
            source.advance()
        source.close()

        assert {event.step for event in events} == {0}

    def test_breakpoints_of_a_configuration_come_and_go_with_it(self, source: Source) -> None:
        trigger = Trigger(node=source.tensor, predicate='tensor.role == "weight" and tensor.l2 > 0', name="written")
        events = source.probe.subscribe(EventFilter(kinds=(HitEvent,)))

        source.probe.configure(CaptureConfiguration(level=1, every=1, triggers=(trigger,)))
        source.advance()
        source.probe.configure(EVERY_STEP)
        source.advance()
        source.close()

        assert [(event.step, event.breakpoint) for event in events if isinstance(event, HitEvent)] == [(0, "written")]
