"""A probe knows the model as it is now, gives it back when it comes off, and comes off only for one that holds."""

import gc
import logging
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from rankscope.errors import ConfigError
from rankscope.probe import CaptureConfiguration, EventFilter, HitEvent, ProbeEvent, StatisticsEvent, Trigger
from rankscope.probe.attach import attach
from rankscope_proto.names import Role
from tests.agent.probe.contract import EVERY_STEP
from tests.agent.probe.test_local_probe import Trained
from tests.agent.probe.trainings import Block, Criterion, Model, Recorded, batches, loader, trained

STATISTICS = (StatisticsEvent,)
WRONG: list[dict[str, Any]] = [
    {"configuration": CaptureConfiguration(triggers=(Trigger(node="nowhere", predicate="tensor.l2 > 0"),))},
    {"loader": [1, 2]},
    {"loader": 5},
    {"every": 0},
    {"optimizer": "SGD"},
]


@pytest.fixture
def source() -> Iterator[Trained]:
    """A model that is trained a step at a time."""
    trained = Trained()
    yield trained
    trained.close()


@pytest.mark.parametrize("options", WRONG, ids=lambda options: next(iter(options)))
def test_a_watch_that_is_refused_leaves_the_earlier_one_on(options: dict[str, Any]) -> None:
    recorded, model, data = Recorded(), Model(), loader(2)
    kind = type(data)
    first = attach(recorded.run, model, every=1, loader=data)

    with pytest.raises(ConfigError):
        attach(recorded.run, model, **options)
    with recorded.run.step(0):
        model(batches(1)[0][0])
    first.detach()

    assert [row["name"] for row in recorded.rows("tensor_stats")].count("blocks.0") == 1
    assert type(data) is kind


def test_a_watch_takes_the_path_of_the_one_it_replaces() -> None:
    recorded, one, other = Recorded(), Model(), Model()
    attach(recorded.run, one)
    attach(recorded.run, other)

    again = attach(recorded.run, other)

    assert again.root == "model2"


@pytest.mark.parametrize("ended", ["detached", "finished", "unrecorded"])
def test_a_probe_that_is_kept_keeps_no_model(ended: str) -> None:
    recorded, model = Recorded(), Model()
    model.head.weight = model.embed.weight
    if ended == "unrecorded":
        recorded.run.finish()
    probe = (
        trained(recorded, model, steps=2, level=2, every=1) if ended != "unrecorded" else attach(recorded.run, model)
    )
    if ended != "unrecorded":
        probe.set_breakpoint(Trigger(node="head", predicate="tensor.l2 > 0"))
        probe.capture(["embed.weight"])
    before = probe.describe().nodes
    gone, weight = weakref.ref(model), weakref.ref(model.embed.weight)

    probe.detach() if ended == "detached" else recorded.run.finish()
    del model
    gc.collect()

    assert (gone(), weight()) == (None, None)
    assert probe.describe().nodes == before


def test_a_model_that_gets_its_values_after_it_is_watched_is_on_the_host_from_then_on() -> None:
    recorded, model = Recorded(), nn.Sequential(nn.Linear(2, 2, device="meta"))
    probe = attach(recorded.run, model, every=4)
    assert "on a device" in " ".join(probe.describe().limits)
    events = probe.subscribe(EventFilter(kinds=STATISTICS))

    model.to_empty(device="cpu")
    nn.init.ones_(next(model.parameters()))
    with recorded.run.step(7):  # no step of the stride
        model(torch.ones(1, 2))

    assert "on a device" not in " ".join(probe.describe().limits)
    assert [event.step for event in events.drain()] == [7]


def test_a_glob_names_what_the_model_has_got_since(source: Trained) -> None:
    predicate = 'tensor.role == "activation" and tensor.numel > 0'
    armed = source.probe.set_breakpoint(Trigger(node="blocks.*", predicate=predicate))
    hits = source.probe.subscribe(EventFilter(kinds=(HitEvent,)))
    source.advance()

    source.model.blocks.append(Block(8))
    source.advance()

    told = [(event.step, event.node) for event in hits.drain() if isinstance(event, HitEvent)]
    assert told == [(step, f"blocks.{block}") for step, blocks in ((0, 3), (1, 4)) for block in range(blocks)]
    assert armed.hits == 7


def test_a_breakpoint_whose_node_is_gone_is_said_and_the_others_go_on(
    source: Trained, caplog: pytest.LogCaptureFixture
) -> None:
    gone = source.probe.set_breakpoint(Trigger(node="blocks.2", predicate="tensor.numel > 0", name="gone"))
    stays = source.probe.set_breakpoint(Trigger(node="head.weight", predicate='tensor.role == "grad"'))

    del source.model.blocks[2]
    with caplog.at_level(logging.WARNING):
        source.advance()

    assert "breakpoint gone has nothing to judge in the model as it is now" in caplog.text
    assert (gone.hits, stays.hits) == (0, 1)


@pytest.mark.parametrize(
    "glob", ["blocks.*", "*weight", "blocks.*.linear", "blocks.*.*", "head", "h*", "*.1.norm.bias"]
)
def test_a_subscription_names_nodes_as_breakpoints_do(source: Trained, glob: str) -> None:
    everything = source.probe.subscribe(EventFilter(kinds=STATISTICS))
    some = source.probe.subscribe(EventFilter(nodes=(glob,), kinds=STATISTICS))

    source.advance()

    named = set(source.probe.watch.keys_of(glob))
    expected = [pair for pair in _told(everything.drain()) if (pair[0], pair[1].code) in named]
    assert _told(some.drain()) == expected != []


def _told(events: list[ProbeEvent]) -> list[tuple[str, Role]]:
    return [(event.node, event.role) for event in events if isinstance(event, StatisticsEvent)]


def test_whoever_subscribes_in_a_step_is_told_of_nothing_before() -> None:
    recorded, model, criterion = Recorded(), Model(), Criterion()
    probe = attach(recorded.run, model, loss=criterion, configuration=EVERY_STEP)
    earlier = probe.subscribe()
    codes, targets = batches(1)[0]

    with recorded.run.step(0):
        scores = model(codes)
        later = probe.subscribe()
        criterion(scores, targets).backward()

    first = next(event.node for event in later.drain() if isinstance(event, StatisticsEvent))
    assert first == "loss"
    assert "blocks.0" in [event.node for event in earlier.drain() if isinstance(event, StatisticsEvent)]
