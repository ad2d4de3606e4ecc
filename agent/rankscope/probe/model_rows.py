"""The rows a watch writes once, when it is attached: the model's modules, and what it will not capture."""

from collections.abc import Sequence

from rankscope._block import Block
from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.graph import Node, own_parameters
from rankscope_proto.names import GapCause, GapClass

_HAS_LAYER_INDEX = 1 << 0
_NOT_CAPTURED = GapClass.NOT_CAPTURED.code
_LEVEL_DETAIL = {
    0: "level 0: no tensor statistics but the loss's finiteness",
    1: "level 1: no activation statistics but finiteness, no histograms, no updates, no values",
    2: "level 2: no values",
    3: "level 3: values only in steps in which something asks for them",
}


def modules_block(nodes: Sequence[Node], time_ns: int) -> Block:
    """One row per module, in declaration order."""
    own = [own_parameters(node.module) for node in nodes]
    flat = [named for parameters in own for named in parameters]
    columns = {
        "path": [node.path for node in nodes],
        "parent": [node.parent for node in nodes],
        "class": [type(node.module).__name__ for node in nodes],
        "type": [str(node.layer_type) for node in nodes],
        "layer_index": [node.layer_index or 0 for node in nodes],
        "parameters": [name for name, _ in flat],
        "parameter_shapes": ["x".join(map(str, parameter.shape)) for _, parameter in flat],
        "parameter_dtypes": [str(parameter.dtype).removeprefix("torch.") for _, parameter in flat],
        "parameter_n": [len(parameters) for parameters in own],
        "aliases": [alias for node in nodes for alias in node.aliases],
        "alias_n": [len(node.aliases) for node in nodes],
        "time": [time_ns] * len(nodes),
        "present": [0 if node.layer_index is None else _HAS_LAYER_INDEX for node in nodes],
    }
    return Block("modules", len(nodes), columns)


def configuration_gaps(configuration: CaptureConfiguration, time_ns: int) -> list[Block]:
    """One row for what the level leaves out and one for the steps the stride leaves out, from now on."""
    gaps = [gap_block(GapCause.LEVEL, _LEVEL_DETAIL[configuration.level], time_ns=time_ns)]
    if configuration.level >= 1 and configuration.every > 1:
        detail = f"weights and gradients of steps that are a multiple of {configuration.every}"
        gaps.append(gap_block(GapCause.SAMPLED, detail, time_ns=time_ns, stride=configuration.every))
    return gaps


def gap_block(cause: GapCause, detail: str, *, time_ns: int, stride: int | None = None) -> Block:
    """One `not_captured` row about tensor statistics, open at its end."""
    columns: dict[str, Sequence[int] | Sequence[str]] = {
        "class": [_NOT_CAPTURED],
        "cause": [str(cause)],
        "data_kind": ["tensor_stats"],
        "start": [time_ns],
        "detail": [detail],
    }
    if stride is not None:
        columns["step_stride"] = [stride]
    return Block("gaps", 1, columns)
