"""A breakpoint sees every row of its nodes, fires where its condition holds, and does what was asked of it."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from rankscope.errors import BreakpointHit, ConfigError
from rankscope.probe import Action, CaptureConfiguration, HitEvent, LocalProbe, Trigger
from rankscope.probe.budget import Budget
from rankscope.probe.depth import Depth
from rankscope.probe.meters import DeviceMeter
from rankscope_proto.names import Phase, Role
from tests.agent.probe.devices import HostAsDevice
from tests.agent.probe.test_local_probe import Trained
from tests.agent.probe.trainings import Criterion, Model, Recorded, batches, hook_count, names, norm_of, train, watching
from tests.ground.stores import Store
from tests.proto.batches import insert

NONFINITE = "tensor.nan_count > 0 or tensor.inf_count > 0"
ALWAYS = "tensor.numel > 0"
OUTPUT = 'tensor.role == "activation"'
GRAD = 'tensor.role == "grad"'


@pytest.fixture
def trained() -> Iterator[Trained]:
    """A model that is trained a step at a time, its probe at level 1, with full steps far apart."""
    source = Trained(CaptureConfiguration(every=1000))
    yield source
    source.close()


def armed(probe: LocalProbe, node: str, predicate: str, **options: Any) -> Any:
    """Sets a breakpoint."""
    return probe.set_breakpoint(Trigger(node=node, predicate=predicate, **options))


def test_the_layer_that_overflows_is_found_in_its_step_and_the_hit_is_in_the_store(
    trained: Trained, migrated: Store
) -> None:
    armed(trained.probe, "blocks.*", f"{OUTPUT} and ({NONFINITE})", name="overflow", precise=True, once=True)

    for step in range(4):
        trained.advance(is_ill=step == 2)
    trained.close()
    insert(migrated.client, *trained.recorded.exporter.messages())

    found = migrated.client.query(
        "SELECT breakpoint, name, role, step, phase, mode, action, count, seen['tensor.inf_count'] FROM hits"
    ).result_rows
    infinite = 4 * 5 * 8
    activation, forward = Role.ACTIVATION.code, Phase.FORWARD.code
    assert found == [("overflow", "blocks.1", activation, 2, forward, "precise", "nothing", 1, infinite)]


def test_a_precise_breakpoint_is_judged_before_training_goes_on(trained: Trained) -> None:
    order: list[str] = []

    def entered(_module: nn.Module, _args: Any) -> None:
        order.append("the next layer")

    trained.model.blocks[2].register_forward_pre_hook(entered)
    trigger = Trigger(node="blocks.1", predicate=OUTPUT, precise=True)
    trained.probe.set_breakpoint(trigger, callback=lambda hit: order.append(hit.node))

    trained.advance()

    assert order == ["blocks.1", "the next layer"]


def test_a_relaxed_breakpoint_is_judged_when_the_step_ends(trained: Trained) -> None:
    hits: list[HitEvent] = []
    trained.probe.set_breakpoint(Trigger(node="blocks.1", predicate=OUTPUT), callback=hits.append)
    seen_inside: list[int] = []

    def updated(*_call: Any) -> None:
        seen_inside.append(len(hits))

    trained.optimizer.register_step_post_hook(updated)

    trained.advance()

    assert (seen_inside, len(hits)) == ([0], 1)


def test_nodes_of_a_breakpoint_are_measured_in_every_step_and_no_others(trained: Trained) -> None:
    trained.advance()
    armed(trained.probe, "head.weight", f"{GRAD} and tensor.l2 > 0")

    for _ in range(3):
        trained.advance()

    rows = trained.recorded.rows("tensor_stats", role=Role.GRAD.code)
    assert [(row["name"], row["step"]) for row in rows if row["step"] > 0] == [
        ("head.weight", step) for step in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("level", "ratio", "whole"),
    [(0, "update_ratio", False), (1, "update_ratio", True), (1, "grad_to_weight", False), (2, "grad_to_weight", False)],
)
def test_ratios_to_the_weight_are_known_in_every_step_of_a_breakpoint_that_names_one(
    level: int, ratio: str, whole: bool
) -> None:
    trained, hits = Trained(CaptureConfiguration(level=level, every=1000, whole_updates=whole)), list[HitEvent]()
    trigger = Trigger(node="head.weight", predicate=f"tensor.{ratio} > 0")
    trained.probe.set_breakpoint(trigger, callback=hits.append)

    for _ in range(3):
        trained.advance()

    assert [hit.step for hit in hits] == [0, 1, 2]
    trained.close()


def test_when_the_last_breakpoint_is_removed_nothing_more_is_measured(trained: Trained) -> None:
    trained.advance()
    breakpoint_ = armed(trained.probe, "head.weight", f"{GRAD} and tensor.l2 > 0")
    trained.advance()
    breakpoint_.remove()
    trained.advance()

    rows = trained.recorded.rows("tensor_stats", name="head.weight", role=Role.GRAD.code)
    assert [row["step"] for row in rows] == [0, 1]


@pytest.mark.parametrize(
    ("node", "predicate", "depth", "roles"),
    [
        ("blocks.1", NONFINITE, Depth.FINITE, {Role.ACTIVATION, Role.ACTIVATION_GRAD}),
        ("blocks.1", f"{OUTPUT} and tensor.l2 > 1", Depth.NORMS, {Role.ACTIVATION}),
        ("head.weight", "tensor.l2 > 1", Depth.NORMS, {Role.WEIGHT, Role.GRAD, Role.GRAD_INCREMENT}),
        ("head.weight", f"{GRAD} and tensor.zero_frac > 0.5 and tensor.l2 > 1", Depth.TABLE, {Role.GRAD}),
        ("head.weight", "tensor.grad_to_weight > 1", Depth.NORMS, {Role.GRAD}),
        ("head.weight", "tensor.update_ratio > 0.1", Depth.TABLE, {Role.UPDATE}),
        ("head.weight", 'robust_z(tensor.std) > 6 and tensor.role == "weight"', Depth.TABLE, {Role.WEIGHT}),
    ],
)  # fmt: skip
def test_a_node_is_looked_at_as_closely_as_the_condition_needs(
    trained: Trained, node: str, predicate: str, depth: Depth, roles: set[Role]
) -> None:
    breakpoint_ = armed(trained.probe, node, predicate)

    depths = breakpoint_.predicate.depths
    assert {key[1] for key in depths} == {role.code for role in roles}
    assert {*depths.values()} == {depth}


@pytest.mark.parametrize(
    ("node", "predicate", "said"),
    [
        ("head.wieght", ALWAYS, "did you mean head.weight"),
        ("blocks.1", "tensor.l2 >", "the query ends too early"),
        ("blocks.1", "span.duration > 3s", "a breakpoint is asked of tensors"),
        ("blocks.1", "tensor.microbatch > 1", "tensor.microbatch is captured at no level"),
        ("blocks.1", "attempt > 1 and tensor.l2 > 1", "attempt is only known when a run is read"),
        ("blocks.1", 'tensor.l2 > 1 and tensor.role == "weight"', "whose tensors are activation, activation_grad"),
        ("head.weight", 'tensor.role == "optimizer_state" and tensor.l2 > 1', "this never holds of head.weight"),
        ("head.weight", 'tensor.role == "weight" and tensor.update_ratio > 1', "this never holds of head.weight"),
        ("head.weight", 'module.path == "embed" and tensor.l2 > 1', "this never holds of head.weight"),
        ("head.weight", 'module.class == "Embedding" and tensor.l2 > 1', "this never holds of head.weight"),
        ("head.weight", "rank == 3 and tensor.l2 > 1", "this never holds of head.weight"),
        ("blocks.*", "layer.index == 3 and tensor.l2 > 1", "this never holds of blocks"),
        ("head.weight", "tensor.l2 > 1 | first", "has no stages"),
    ],
)
def test_a_breakpoint_that_can_never_fire_is_refused(trained: Trained, node: str, predicate: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        armed(trained.probe, node, predicate)

    assert said in str(refused.value)


@pytest.mark.parametrize(
    "predicate", ["tensor.update_ratio > 1", 'tensor.role == "update"', "tensor.grad_to_weight > 1"]
)
def test_what_is_known_when_the_step_has_ended_cannot_be_judged_before(trained: Trained, predicate: str) -> None:
    with pytest.raises(ConfigError, match="leave out precise"):
        armed(trained.probe, "head.weight", predicate, precise=True)


def test_a_condition_may_name_the_process_its_run_and_the_module(trained: Trained) -> None:
    predicate = f'{OUTPUT} and rank == 0 and module.class == "Block" and layer.path == "blocks.1" and world_size == 1'
    breakpoint_ = armed(trained.probe, "blocks.*", predicate)

    trained.advance()

    assert breakpoint_.hits == 1


@pytest.mark.parametrize(
    ("node", "predicate"),
    [("blocks.1", OUTPUT), ("head.weight", GRAD)],
    ids=["out of the model's call", "out of backward"],
)
def test_a_precise_breakpoint_that_raises_stops_training_where_it_is(
    trained: Trained, node: str, predicate: str
) -> None:
    trained.advance()
    armed(trained.probe, node, predicate, action=Action.RAISE, precise=True, name="stop", once=True)
    before = trained.model.head.weight.detach().clone()

    with pytest.raises(BreakpointHit, match=f"breakpoint stop fired on {node} .* in step 1") as raised:
        trained.advance()

    assert isinstance(raised.value.hit, HitEvent)
    assert torch.equal(trained.model.head.weight, before)
    trained.step += 1
    trained.advance()
    assert names(trained.recorded.rows("hits")) == [node]


def test_a_relaxed_breakpoint_that_raises_does_so_when_the_step_ends(trained: Trained) -> None:
    armed(trained.probe, "blocks.1", OUTPUT, action=Action.RAISE)

    with pytest.raises(BreakpointHit):
        trained.advance()

    assert trained.probe.watch.guard.failures == 0


def test_where_backward_and_then_the_end_of_the_step_raise_no_hook_is_left_on_a_parameter(trained: Trained) -> None:
    for node, role in (("blocks.1", "activation_grad"), ("head.weight", "grad")):
        armed(trained.probe, node, f'tensor.role == "{role}"', action=Action.RAISE, precise=True)

    with pytest.raises(BreakpointHit):
        trained.advance()

    assert hook_count(*trained.model.parameters()) == 0


def test_a_stride_that_grows_in_a_step_whose_end_raises_is_said(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(budget: Budget, _duration_ns: int, *, captured: bool) -> None:
        budget.stride *= 2 if captured else 1

    monkeypatch.setattr(Budget, "took", grow)
    armed(trained.probe, "blocks.1", OUTPUT, action=Action.RAISE)

    with pytest.raises(BreakpointHit):
        trained.advance()

    gaps = trained.recorded.rows("gaps", cause="budget")
    assert [(row["step_from"], row["step_stride"]) for row in gaps] == [(1, 2000)]


def test_whoever_raises_keeps_no_other_from_what_a_hit_does(trained: Trained) -> None:
    armed(trained.probe, "blocks.1", OUTPUT, action=Action.RAISE, precise=True, name="stop")
    armed(trained.probe, "blocks.1", OUTPUT, action=Action.CAPTURE, precise=True, name="look")

    with pytest.raises(BreakpointHit, match="breakpoint stop"):
        trained.advance()

    assert [row["breakpoint"] for row in trained.recorded.rows("hits")] == ["stop", "look"]
    assert [row["cause"] for row in trained.recorded.rows("captures")] == ["look"]


def test_every_hit_of_a_relaxed_breakpoint_that_raises_is_recorded(trained: Trained) -> None:
    armed(trained.probe, "blocks.*", OUTPUT, action=Action.RAISE)

    with pytest.raises(BreakpointHit, match=r"fired on blocks\.0 "):
        trained.advance()

    assert names(trained.recorded.rows("hits")) == ["blocks.0", "blocks.1", "blocks.2"]


def test_a_hit_raises_the_level_of_its_node_for_the_steps_asked_for(trained: Trained) -> None:
    armed(trained.probe, "head.weight", f"{GRAD} and step == 1", action=Action.LEVEL, level=2, steps=2)

    for _ in range(5):
        trained.advance()

    rows = trained.recorded.rows("tensor_stats", name="head.weight", role=Role.GRAD.code)
    assert [row["step"] for row in rows if row.get("std") is not None] == [2, 3]


def test_a_hit_that_is_known_a_step_late_raises_the_level_for_as_many_steps() -> None:
    recorded, model, device = Recorded(), Model(), HostAsDevice()
    configuration = CaptureConfiguration(every=1000)
    watch = watching(recorded, model, configuration, meter_for=lambda _device: DeviceMeter(device))
    probe = LocalProbe(watch, {})
    watch.hook(optimizers=[], scaler=None, criterion=None, loader=None)
    armed(probe, "head.weight", f"{GRAD} and step == 1", action=Action.LEVEL, level=2)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = train(recorded.run, model, batches(5), optimizer=optimizer, criterion=Criterion())
    for step, _ in enumerate(training):
        device.is_behind = step == 1

    rows = recorded.rows("tensor_stats", name="head.weight", role=Role.GRAD.code)
    assert [row["step"] for row in rows if row.get("std") is not None] == [3]


def test_values_that_a_hit_raised_the_level_for_are_of_its_breakpoint(trained: Trained) -> None:
    predicate = f"{GRAD} and step < 2"
    armed(trained.probe, "head.weight", predicate, action=Action.LEVEL, level=3, steps=1, name="close")

    for _ in range(4):
        trained.advance()

    rows = trained.recorded.rows("captures", role=Role.GRAD.code)
    assert [(row["step"], row["cause"]) for row in rows] == [(1, "close"), (2, "close")]


def test_a_node_that_is_hit_in_every_step_is_raised_once(trained: Trained) -> None:
    armed(trained.probe, "head.weight", GRAD, action=Action.LEVEL, level=2, steps=1000)
    trained.advance()
    trained.advance()
    raised = trained.probe.raised(2)

    trained.advance()

    assert trained.probe.raised(3) is raised


def test_a_precise_hit_keeps_the_values_that_it_was_judged_by(trained: Trained) -> None:
    outputs: list[torch.Tensor] = []
    trained.model.blocks[1].register_forward_hook(
        lambda _module, _args, output: outputs.append(output.detach().clone())
    )
    armed(trained.probe, "blocks.1", f"{OUTPUT} and step == 1", action=Action.CAPTURE, precise=True, name="look")

    trained.advance()
    trained.advance()

    (row,) = trained.recorded.rows("captures")
    assert (row["name"], row["step"], row["cause"]) == ("blocks.1", 1, "look")
    assert row["data"] == outputs[1].numpy().tobytes()


def test_a_relaxed_hit_keeps_the_values_of_the_next_step(trained: Trained) -> None:
    armed(trained.probe, "head.weight", f"{GRAD} and step == 0", action=Action.CAPTURE, name="look")

    for _ in range(3):
        trained.advance()

    rows = trained.recorded.rows("captures")
    assert [(row["name"], row["role"], row["step"], row["cause"]) for row in rows] == [
        ("head.weight", Role.GRAD.code, 1, "look")
    ]


@pytest.mark.parametrize("action", [Action.CAPTURE, Action.LEVEL])
def test_a_hit_on_an_update_keeps_what_the_optimizer_changes_in_the_next_step(trained: Trained, action: Action) -> None:
    predicate = "tensor.update_ratio >= 0 and step == 0"
    armed(trained.probe, "head.weight", predicate, action=action, level=3, name="look")
    trained.advance()
    before = trained.model.head.weight.detach().clone()

    trained.advance()

    moved = trained.model.head.weight.detach() - before
    (row,) = trained.recorded.rows("captures", role=Role.UPDATE.code)
    assert (row["name"], row["step"], row["cause"]) == ("head.weight", 1, "look")
    assert row["data"] == moved.numpy().tobytes()
    update = trained.recorded.rows("tensor_stats", step=1, role=Role.UPDATE.code)[0]
    assert update["update_ratio"] == pytest.approx(norm_of(moved) / norm_of(before))
    assert update["flags"] == 0


def test_that_a_hit_asked_for_values_which_never_came_is_a_gap(trained: Trained) -> None:
    armed(trained.probe, "head.weight", f"{GRAD} and step == 0", action=Action.CAPTURE, name="look")
    trained.advance()
    trained.model.head.requires_grad_(requires_grad=False)

    trained.advance()
    trained.advance()

    details = [row["detail"] for row in trained.recorded.rows("gaps", cause="unsupported")]
    told = "values that look asked for: nothing that head.weight names was seen in step 1"
    assert [detail for detail in details if detail.startswith(told)]


def test_a_gradient_that_arrives_at_an_output_is_judged_alone(trained: Trained) -> None:
    predicate = 'tensor.role == "activation_grad" and tensor.nonfinite_count == 0'
    breakpoint_ = armed(trained.probe, "blocks.1", predicate, precise=True)

    for _ in range(4):
        trained.advance()

    assert breakpoint_.hits == 4


@pytest.mark.parametrize("precise", [True, False], ids=["precise", "relaxed"])
def test_a_callback_that_raises_is_counted_said_once_and_hurts_nobody(
    trained: Trained, caplog: pytest.LogCaptureFixture, *, precise: bool
) -> None:
    def fail(_hit: HitEvent) -> None:
        raise RuntimeError("mine")

    trigger = Trigger(node="blocks.1", predicate=OUTPUT, precise=precise, name="mine")
    breakpoint_ = trained.probe.set_breakpoint(trigger, callback=fail)

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            trained.advance()

    assert (breakpoint_.hits, breakpoint_.failures) == (5, 5)
    assert [record.message for record in caplog.records if "mine" in record.message] == [
        "the callback of breakpoint mine failed; training goes on, and further failures are only counted"
    ]
    assert trained.probe.watch.guard.failures == 0


def test_training_is_bit_identical_with_breakpoints_and_without() -> None:
    plain, observed = Trained(CaptureConfiguration(level=0)), Trained(CaptureConfiguration())
    for node, predicate in (("*", NONFINITE), ("head", "tensor.std > 0"), ("embed.weight", "tensor.l2 > 0")):
        armed(observed.probe, node, predicate, precise=True)

    for source in (plain, observed):
        for _ in range(4):
            source.advance()
        source.close()

    for left, right in zip(plain.model.parameters(), observed.model.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("precise", [True, False], ids=["precise", "relaxed"])
def test_a_callback_may_wait_for_another_thread_that_changes_breakpoints(trained: Trained, *, precise: bool) -> None:
    def paused(_hit: HitEvent) -> None:
        person = threading.Thread(target=breakpoint_.remove)
        person.start()
        person.join(5)
        waited.append(person.is_alive())

    waited: list[bool] = []
    trigger = Trigger(node="blocks.1", predicate=OUTPUT, precise=precise)
    breakpoint_ = trained.probe.set_breakpoint(trigger, callback=paused)

    trained.advance()
    trained.advance()

    assert (waited, breakpoint_.hits) == ([False], 1)


def test_a_breakpoint_may_be_set_and_removed_by_its_own_callback(trained: Trained) -> None:
    later: list[Any] = []
    trigger = Trigger(node="blocks.0", predicate=OUTPUT)
    first = trained.probe.set_breakpoint(trigger, callback=lambda _hit: first.remove())
    trained.probe.set_breakpoint(
        Trigger(node="blocks.1", predicate=OUTPUT, once=True),
        callback=lambda _hit: later.append(armed(trained.probe, "blocks.2", OUTPUT)),
    )

    for _ in range(3):
        trained.advance()

    assert (first.hits, later[0].hits) == (1, 2)
