"""A model in this process is a source of live data as any other, and training does not notice who looks at it."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from rankscope import Run
from rankscope.errors import ConfigError
from rankscope.probe import CaptureConfiguration, EventFilter, NodeKind, ProbeEvent, SpanEvent, Trigger
from rankscope.probe.attach import attach
from rankscope_proto.names import Phase, Role
from tests.agent.probe.contract import EVERY_STEP, ProbeContract, Source
from tests.agent.probe.trainings import Criterion, Model, Recorded, batches, hook_count


class Trained:
    """A model that is trained here, a step at a time: a `Source`."""

    def __init__(self, configuration: CaptureConfiguration = EVERY_STEP) -> None:
        torch.manual_seed(0)
        self.recorded = Recorded()
        self.model = Model()
        self.optimizer, self.criterion = torch.optim.SGD(self.model.parameters(), lr=0.1), Criterion()
        self.probe = attach(
            self.recorded.run,
            self.model,
            optimizer=self.optimizer,
            loss=self.criterion,
            configuration=configuration,
        )
        self.module, self.tensor = "blocks.1", "head.weight"
        self.data = batches(8)
        self.step = 0

    def advance(self, *, is_ill: bool = False) -> None:
        """Train for a step."""
        self.model.overflow(1, on=is_ill)
        codes, targets = self.data[self.step]
        with self.recorded.run.step(self.step):
            self.optimizer.zero_grad()
            self.criterion(self.model(codes), targets).backward()
            self.optimizer.step()
        self.step += 1

    def close(self) -> None:
        """End the run."""
        self.recorded.run.finish()


@pytest.fixture
def source() -> Iterator[Trained]:
    """The source."""
    trained = Trained()
    yield trained
    trained.close()


class TestLocalProbe(ProbeContract):
    """The contract."""


def test_layers_and_modules_are_told_apart(source: Trained) -> None:
    description = source.probe.describe()

    kinds = {path: description.node(path).kind for path in ("blocks", "blocks.0", "blocks.0.linear")}
    assert kinds == {"blocks": NodeKind.MODULE, "blocks.0": NodeKind.LAYER, "blocks.0.linear": NodeKind.MODULE}
    assert description.node("blocks.2.norm.bias").layer_index == 2
    assert (description.source, description.can_pause) == ("local", True)


def test_tied_and_frozen_parameters_are_described() -> None:
    model = Model()
    model.head.weight = model.embed.weight
    model.norm.requires_grad_(requires_grad=False)

    with Run(None) as run:
        description = attach(run, model).describe()

    assert description.node("embed.weight").aliases == ("head.weight",)
    assert "head.weight" not in [node.path for node in description.nodes]
    assert description.node("norm.weight").roles == ()
    assert "2 parameters are frozen" in " ".join(description.limits)


def test_phases_and_steps_are_told_as_spans(source: Trained) -> None:
    with source.probe.subscribe(EventFilter(kinds=(SpanEvent,))) as events:
        source.advance()
        told = [event for event in events.drain() if isinstance(event, SpanEvent)]

    assert [event.phase for event in told] == [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, None]
    assert told[-1].name == "step"
    assert told[-1].duration_ns >= sum(event.duration_ns for event in told[:-1])


def test_a_subscriber_in_a_thread_of_its_own_is_woken(source: Trained) -> None:
    events = source.probe.subscribe()
    told: list[ProbeEvent] = []
    reader = threading.Thread(target=lambda: told.extend(events))
    reader.start()

    source.advance()
    source.close()
    reader.join(10)

    assert not reader.is_alive()
    assert told


def test_nobody_who_subscribed_and_left_is_remembered(source: Trained) -> None:
    recording = source.probe.watch.recording

    with source.probe.subscribe():
        source.advance()

    assert vars(recording)["_row_listeners"] == ()


def test_whoever_subscribes_too_late_is_told_nothing(source: Trained) -> None:
    source.probe.detach()

    assert list(source.probe.subscribe()) == []


def test_a_probe_of_a_run_that_records_nothing_refuses_nothing() -> None:
    with Run(None) as run:
        probe = attach(run, Model())
        armed = probe.set_breakpoint(Trigger(node="head", predicate="tensor.l2 > 0"))
        handle = probe.capture(["head"])
        probe.configure(CaptureConfiguration(level=2))

    assert armed.is_removed
    assert handle.is_done
    assert "come off" in handle.reason


def test_a_role_that_a_node_has_not_is_refused(source: Source) -> None:
    with pytest.raises(ConfigError, match="has no weight; ask for other roles"):
        source.probe.capture(["blocks.1"], roles=[Role.WEIGHT])


def test_a_breakpoint_of_the_configuration_that_cannot_be_armed_is_refused_before_anything_is_hooked() -> None:
    recorded, model = Recorded(), Model()
    trigger = Trigger(node="haed", predicate="tensor.l2 > 0")

    with pytest.raises(ConfigError, match="no module or tensor of the model is called haed; did you mean head"):
        attach(recorded.run, model, configuration=CaptureConfiguration(triggers=(trigger,)))

    assert hook_count(*model.modules()) == 0


def test_breakpoints_of_a_configuration_are_gone_though_those_of_the_next_cannot_be_armed(source: Trained) -> None:
    shared = Trigger(node=source.tensor, predicate="tensor.l2 > 0", name="shared")
    gone, wrong = replace(shared, name="gone"), replace(shared, node="nowhere")
    source.probe.configure(replace(EVERY_STEP, triggers=(shared, gone)))
    source.advance()

    source.probe.watch.configure(replace(EVERY_STEP, triggers=(shared, wrong)))  # as a file is taken: unchecked
    source.advance()

    hits = source.recorded.rows("hits", step=1)
    assert {row["breakpoint"] for row in hits} == {"shared"}


def test_a_further_model_has_paths_of_its_own(source: Trained) -> None:
    second = attach(source.recorded.run, nn.Sequential(nn.Linear(2, 2)))

    assert [node.path for node in second.describe().nodes] == ["model2", "model2.0", "model2.0.weight", "model2.0.bias"]
    assert second.describe().nodes[0].parent is None
    assert repr(second) == "<LocalProbe of Sequential level=1 every=10>"


def test_what_is_said_about_probes_needs_no_torch() -> None:
    program = "import sys, rankscope.probe; print('torch' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout == "False\n"
