"""Paths, layers and types of a model, however it is wrapped."""

from typing import Any, cast

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as checkpointing

from rankscope.probe.adapters import guess_type
from rankscope.probe.attach import attach
from rankscope.probe.configuration import CaptureConfiguration, Trigger
from rankscope.probe.graph import nodes_of, observed, written_class
from rankscope.probe.selection import Selection
from tests.agent.probe.trainings import ACTIVATION, LAYERS, Block, Model, Recorded, Row


def paths(model: nn.Module) -> list[str]:
    return [node.path for node in nodes_of(model)]


def test_modules_are_listed_parents_first_with_their_layer() -> None:
    nodes = {node.path: node for node in nodes_of(Model())}

    assert next(iter(nodes)) == ""
    assert nodes["blocks.1.linear"].parent == "blocks.1"
    assert nodes["blocks.1.linear"].layer_index == 1
    assert nodes["head"].layer_index is None
    assert [path for path, node in nodes.items() if node.is_block] == ["blocks.0", "blocks.1", "blocks.2"]


def test_wrappers_leave_no_trace_in_a_path() -> None:
    model = Model()
    plain = paths(model)
    model.blocks[1] = cast("Any", checkpointing).checkpoint_wrapper(model.blocks[1])
    model.blocks[2] = cast("nn.Module", torch.compile(model.blocks[2], backend="eager"))

    assert paths(nn.DataParallel(model)) == plain


def test_blocks_embeddings_norm_and_head_are_observed() -> None:
    assert [node.path for node in observed(nodes_of(Model()))] == LAYERS


def test_in_a_plain_sequence_every_layer_with_parameters_is_observed() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(1, 1))

    assert [node.path for node in observed(nodes_of(model))] == ["0", "3"]


def test_what_is_numbered_inside_a_block_is_no_block() -> None:
    model = nn.ModuleList([nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))])
    nodes = {node.path: node for node in nodes_of(model)}

    assert nodes["0.1"].layer_index == 0
    assert not nodes["0.1"].is_block


def test_experts_are_parts_of_their_layer() -> None:
    layer = nn.Module()
    layer.experts = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
    nodes = {node.path: node for node in nodes_of(nn.ModuleList([layer]))}

    assert nodes["0.experts.1"].layer_index == 0
    assert nodes["0.experts.1"].layer_type == "expert"


def test_a_type_is_guessed_from_the_class_and_else_from_the_name() -> None:
    assert guess_type("LlamaAttention", "x") == "attention"
    assert guess_type("Linear", "lm_head") == "head"
    assert guess_type("T5LayerNorm", "layer_norm") == "norm"
    assert guess_type("Conv2d", "0") == "conv"
    assert guess_type("Linear", "fc") == "other"


def test_a_module_met_twice_is_one_node_with_an_alias() -> None:
    model = Model()
    model.blocks.append(model.blocks[0])

    nodes = {node.path: node for node in nodes_of(model)}

    assert nodes["blocks.0"].aliases == ["blocks.3"]
    assert "blocks.3" not in nodes


def test_the_modules_of_a_watched_model_are_told_once() -> None:
    recorded = Recorded()
    attach(recorded.run, Model())

    rows: list[Row] = recorded.rows("modules")

    head = next(row for row in rows if row["path"] == "head")
    assert len(rows) == len(list(Model().modules()))
    assert (head["class"], head["type"], head["parent"]) == ("Linear", "head", "")
    assert head["parameters"] == ["weight", "bias"]
    assert head["parameter_shapes"] == ["16x8", "16"]
    assert head["parameter_dtypes"] == ["float32", "float32"]


def test_filters_are_globs_on_paths() -> None:
    configuration = CaptureConfiguration(include=("blocks.*", "head.*"), exclude=("*.bias",))

    assert configuration.wants("blocks.1.linear.weight")
    assert not configuration.wants("head.bias")
    assert not configuration.wants("embed.weight")


def test_a_path_names_one_node_though_another_is_called_so_further_inside() -> None:
    model = Model()
    model.blocks[0].head = nn.Linear(8, 8)
    selection = Selection(nodes_of(model), "loss")

    assert {path for path, _ in selection.keys("head")} == {"head", "head.weight", "head.bias"}
    assert {path for path, _ in selection.keys("hea?")} > {"head.weight", "blocks.0.head.weight"}


def test_a_model_that_changes_is_told_again_and_its_new_modules_are_looked_at() -> None:
    recorded, model = Recorded(), Model()
    attach(recorded.run, model, every=1)
    codes = torch.zeros(1, 2, dtype=torch.long)

    def step(number: int) -> None:
        with recorded.run.step(number):
            model(codes).sum().backward()

    step(0)
    step(1)
    model.embed.weight.requires_grad_(False)
    model.blocks[1] = Block(8)
    model.head = nn.Linear(8, 4)
    step(2)
    step(3)

    rows = recorded.rows("modules")
    heads = [row["parameter_shapes"] for row in rows if row["path"] == "head"]
    trainable = [row["parameter_trainable"] for row in rows if row["path"] == "embed"]
    assert heads == [["16x8", "16"], ["4x8", "4"]]
    assert trainable == [[1], [0]]
    looked_at = [row["step"] for row in recorded.exporter.rows("tensor_stats") if row["name"] == "blocks.1"]
    assert looked_at == [0, 1, 2, 3]


def test_what_a_breakpoint_sees_is_never_taken_for_the_usual_output_of_a_module_that_is_gone() -> None:
    recorded, model = Recorded(), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    trigger = Trigger(node="2", predicate="tensor.std > 1e9")
    attach(recorded.run, model, configuration=CaptureConfiguration(every=1, budget=None, triggers=(trigger,)))

    for step in range(40):
        with recorded.run.step(step):
            model(torch.ones(1, 4)).sum().backward()
        model[0], model[2] = nn.Linear(4, 4), nn.Linear(4, 4)

    rows = recorded.rows("tensor_stats", name="2", role=ACTIVATION)
    assert [row["step"] for row in rows if row["std"] is not None] == list(range(40))


def test_parameters_loaded_by_assignment_change_no_graph() -> None:
    recorded, model = Recorded(), Model()
    attach(recorded.run, model, every=1)

    model.load_state_dict(Model().state_dict(), assign=True)
    with recorded.run.step(0):
        model(torch.zeros(1, 2, dtype=torch.long)).sum().backward()

    assert len(recorded.rows("modules", path="head")) == 1


def test_a_parametrised_layer_has_the_class_its_author_wrote() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))

    assert written_class(layer) is nn.Linear
