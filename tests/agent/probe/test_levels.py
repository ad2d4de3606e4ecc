"""At level 2 a captured step has the whole table of every tensor, equal to what is computed the plain way."""

import math
from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from rankscope.probe.attach import attach
from rankscope_proto.names import Role, SpanKind
from tests.agent.probe.trainings import (
    ACTIVATION,
    GRAD,
    LAYERS,
    LOCAL,
    WEIGHT,
    Criterion,
    Model,
    Recorded,
    Row,
    batches,
    hook_count,
    names,
    trained,
)

ACTIVATION_GRAD = Role.ACTIVATION_GRAD.code


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def truth(tensor: Tensor) -> dict[str, Any]:
    """The statistics of a tensor without non-finite elements, in fp64 and in many passes."""
    x = cast("Any", tensor.detach().double().flatten())
    size = x.abs()
    nonzero = size[size > 0]
    return {
        "nonfinite_count": 0,
        "posinf_count": 0,
        "neginf_count": 0,
        "zero_count": int((x == 0).sum()),
        "min": float(x.min()),
        "max": float(x.max()),
        "absmax": float(size.max()),
        "absmin_nonzero": float(nonzero.min()) if nonzero.numel() else None,
        "mean": float(x.mean()),
        "std": float(x.std(correction=0)),
        "l1": float(size.sum()),
        "l2": float(x.norm()),
        "rms": float(x.norm()) / math.sqrt(x.numel()),
        "subnormal_count": int((nonzero < torch.finfo(tensor.dtype).tiny).sum()),
        "saturated_count": int((size == torch.finfo(tensor.dtype).max).sum()),
    }


def assert_is_of(row: Row, tensor: Tensor) -> None:
    """The row says of the tensor what `truth` does, and its histogram counts each of its non-zero elements once."""
    expected = truth(tensor)
    for name, value in expected.items():
        is_alike = row[name] is None if value is None else row[name] == pytest.approx(value, rel=1e-5, abs=1e-7)
        assert is_alike, (row["name"], name, row[name], value)
    assert sum(row["log2_hist"]) == tensor.numel() - expected["zero_count"], row["name"]
    assert row["shape"] == list(tensor.shape)


def one(rows: Sequence[Row]) -> Row:
    (row,) = rows
    return row


def test_weights_gradients_outputs_and_their_gradients_have_the_whole_table(recorded: Recorded) -> None:
    torch.manual_seed(0)
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, level=2, every=1, budget=None)
    outputs: dict[str, Tensor] = {}

    def note(name: str) -> Any:
        def keep(_module: nn.Module, _args: object, output: Tensor) -> None:
            output.retain_grad()
            outputs[name] = output

        return keep

    for path in LAYERS:
        model.get_submodule(path).register_forward_hook(note(path))
    with recorded.run.step(0):
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert_is_of(one(recorded.rows("tensor_stats", name=name, role=WEIGHT)), parameter)
        assert_is_of(one(recorded.rows("tensor_stats", name=name, role=GRAD, flags=LOCAL)), parameter.grad)
    for path, output in outputs.items():
        assert output.grad is not None
        assert_is_of(one(recorded.rows("tensor_stats", name=path, role=ACTIVATION)), output)
        assert_is_of(one(recorded.rows("tensor_stats", name=path, role=ACTIVATION_GRAD)), output.grad)


def test_a_step_between_has_the_finiteness_of_outputs_only(recorded: Recorded) -> None:
    trained(recorded, Model(), steps=2, level=2, every=2)

    rows = recorded.rows("tensor_stats", step=1)

    assert names(rows) == [*LAYERS, "loss"]
    assert {row["std"] for row in rows} == {None}


class Twice(nn.Module):
    """Calls one layer twice, and gives a dict of a tuple back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.tail = Pair()

    def forward(self, x: Tensor) -> dict[str, Any]:
        return self.tail(of=self.layer(self.layer(x)))


class Pair(nn.Linear):
    """A layer that takes keywords and gives two tensors."""

    def __init__(self) -> None:
        super().__init__(3, 3)

    def forward(self, *, of: Tensor) -> dict[str, Any]:  # type: ignore[override]
        return {"pair": (super().forward(of), of * 2)}


def test_calls_and_outputs_of_one_module_are_told_apart_and_so_are_their_gradients(recorded: Recorded) -> None:
    model = Twice()
    attach(recorded.run, model, level=2, every=1)

    with recorded.run.step(0):
        left, right = model(torch.ones(2, 3))["pair"]
        (left.sum() + 3 * right.sum()).backward()

    def calls(role: int) -> list[tuple[str, int]]:
        return sorted((row["name"], row["call"]) for row in recorded.rows("tensor_stats", role=role))

    expected = [("layer", 0), ("layer", 1), ("tail[0][0]", 0), ("tail[0][1]", 0)]
    assert calls(ACTIVATION) == expected
    assert calls(ACTIVATION_GRAD) == expected
    arrived = one(recorded.rows("tensor_stats", name="tail[0][1]", role=ACTIVATION_GRAD))
    assert (arrived["min"], arrived["max"]) == (3.0, 3.0)


class Choosing(nn.Linear):
    """Puts out scores, which are chosen, whether they are positive, and bits that are no numbers."""

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]  # noqa: A002 - torch's name
        scores = super().forward(input)
        chosen = scores.argsort(-1) - 2
        return scores, chosen, scores > 0, chosen.to(torch.uint8).view(torch.bits8)


def test_whole_numbers_and_booleans_have_the_table_and_what_is_no_number_is_a_gap(recorded: Recorded) -> None:
    model = nn.ModuleDict({"head": Choosing(3, 5)})
    attach(recorded.run, model, level=2, every=1, include=["*"])

    with recorded.run.step(0):
        _, chosen, mask, _ = model["head"](torch.randn(4, 3))

    for index, tensor in (("[1]", chosen), ("[2]", mask)):
        row = one(recorded.rows("tensor_stats", name=f"head{index}"))
        x = tensor.double()
        found = {name: row[name] for name in ("dtype", "min", "max", "mean", "l1", "l2", "zero_count", "zero_frac")}
        assert found == {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "min": float(x.amin()),
            "max": float(x.amax()),
            "mean": pytest.approx(float(x.mean()), abs=1e-7),
            "l1": float(x.abs().sum()),
            "l2": pytest.approx(float(x.norm())),
            "zero_count": int((x == 0).sum()),
            "zero_frac": pytest.approx(float((x == 0).double().mean())),
        }
        assert row["subnormal_count"] == row["saturated_count"] == row["nonfinite_count"] == 0
    assert "head[3]: type torch.bits8 is not measured" in [gap["detail"] for gap in recorded.rows("gaps")]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        (["blocks.1.linear"], {"blocks.1.linear"}),
        (["blocks.*.linear"], {f"blocks.{block}.linear" for block in range(3)}),
        (["blocks.1.*"], {"blocks.1.norm", "blocks.1.linear"}),
        (["head.weight"], set[str]()),
    ],
)
def test_a_glob_may_name_modules_inside_a_block_and_single_parameters(
    recorded: Recorded, include: list[str], expected: set[str]
) -> None:
    trained(recorded, Model(), level=2, every=1, include=include)

    outputs = set(names(recorded.rows("tensor_stats", role=ACTIVATION))) - {"loss"}
    weights = set(names(recorded.rows("tensor_stats", role=WEIGHT)))

    assert outputs == expected
    assert weights <= {name for name, _ in Model().named_parameters()}
    assert ("head.weight" in weights) == (include == ["head.weight"])


def test_a_role_that_is_not_wanted_has_no_row_and_no_hook(recorded: Recorded) -> None:
    model = Model()
    attach(recorded.run, model, level=2, every=1, roles=[Role.WEIGHT])

    with recorded.run.step(0):
        of_layers = hook_count(*(module for module in model.modules() if module is not model))
        Criterion()(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    assert of_layers == 0
    assert {row["role"] for row in recorded.rows("tensor_stats")} == {WEIGHT}


def test_gradients_alone_can_be_captured(recorded: Recorded) -> None:
    trained(recorded, Model(), level=2, every=1, roles=[Role.GRAD, Role.ACTIVATION_GRAD])

    found = {(row["name"], row["role"]) for row in recorded.rows("tensor_stats")} - {("loss", ACTIVATION)}

    assert {role for _, role in found} == {GRAD, ACTIVATION_GRAD}
    assert ("blocks.1", ACTIVATION_GRAD) in found


def test_calls_of_modules_are_spans_in_the_forward_of_captured_steps(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, level=2, every=2, include=["*"])
    for index, (codes, targets) in enumerate(batches(2)):
        with recorded.run.step(index):
            criterion(model(codes), targets).backward()

    spans = {row["span_id"]: row for row in recorded.rows("spans", step=0)}
    linear = one([row for row in spans.values() if row["name"] == "blocks.1.linear"])
    around = [linear]
    while around[-1]["parent_span_id"] in spans:
        around.append(spans[around[-1]["parent_span_id"]])

    assert [row["name"] for row in around[:2]] == ["blocks.1.linear", "blocks.1"]
    assert "forward" in names(around)
    assert {row["kind"] for row in around} == {SpanKind.SYSTEM.code}
    assert {row["phase"] for row in around[:2]} == {one([r for r in around if r["name"] == "forward"])["phase"]}
    assert not [row for row in recorded.rows("spans", step=1) if row["name"].startswith("blocks")]


def test_a_module_that_raises_leaves_no_span_open(recorded: Recorded) -> None:
    class Broken(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
            raise ArithmeticError("no")

    model = nn.Sequential(nn.Linear(2, 2), Broken(2, 2))
    attach(recorded.run, model, level=2, every=1)

    with recorded.run.step(0):
        with pytest.raises(ArithmeticError):
            model(torch.ones(1, 2))
        with recorded.run.span("after"):
            pass

    spans = {row["name"]: row for row in recorded.rows("spans", step=0)}
    assert spans["1"]["duration"] <= spans["forward"]["duration"]
    assert spans["after"]["parent_span_id"] == spans["step"]["span_id"]


def test_what_a_level_leaves_out_is_stated(recorded: Recorded) -> None:
    trained(recorded, Model(), level=2, every=4, include=["blocks.*"], exclude=["*.norm.*"], roles=[Role.WEIGHT])

    gaps = recorded.rows("gaps")

    details = [(row["cause"], row["step_stride"], row["detail"]) for row in gaps]
    assert ("level", None, "level 2: no values") in details
    assert ("sampled", 4, "weights and gradients of steps that are a multiple of 4") in details
    (filters,) = [detail for _, _, detail in details if detail.startswith("filters: ")]
    assert filters.startswith("filters: include blocks.*; exclude *.norm.*; roles weight: ")
