"""What can be captured of a model in this process, as a `Description`."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from rankscope.probe.configuration import LEVELS
from rankscope.probe.contract import Description, NodeInfo, NodeKind
from rankscope.probe.graph import Node, joined, own_parameters, written_class
from rankscope.probe.rows import Numbers
from rankscope.probe.selection import OF_MODULES, OF_PARAMETERS
from rankscope.probe.statistics import engine
from rankscope.probe.watch import Watch, is_compiled

_COUNTS = ("nonfinite_count", "nan_count", "inf_count")
_NORMS = (*_COUNTS, "absmax", "l2")
STATISTICS: Mapping[int, tuple[str, ...]] = {0: _COUNTS, 1: _NORMS, 2: Numbers._fields, 3: Numbers._fields}
"""Statistics by level; what a row of a level has depends on its role and on the step."""


def described(watch: Watch, *, is_on_host: bool) -> Description:
    """The description of a watched model.

    Args:
        watch: Its hooks.
        is_on_host: Whether all of it is on the CPU.
    """
    nodes = watch.selection.nodes
    return Description(
        source="local",
        nodes=tuple(_nodes(nodes, watch.root)),
        roles=(*OF_PARAMETERS, *OF_MODULES),
        statistics=STATISTICS,
        levels=LEVELS,
        can_pause=True,
        limits=tuple(_limits(watch, is_on_host=is_on_host)),
    )


def _nodes(nodes: Sequence[Node], root: str) -> Iterator[NodeInfo]:
    tied = _tied(nodes)
    of_parameters = {alias for aliases in tied.values() for alias in aliases}
    for node in nodes:
        yield _module(node, root, of_parameters=of_parameters)
        for name, parameter in own_parameters(node.module):
            path = joined(node.path, name)
            if path not in tied:
                continue  # another path of one that was met before
            yield NodeInfo(
                path=path,
                kind=NodeKind.TENSOR,
                parent=node.path,
                class_name=written_class(node.module).__name__,
                type=node.layer_type,
                layer_index=node.layer_index,
                shape=tuple(parameter.shape),
                dtype=str(parameter.dtype).removeprefix("torch."),
                aliases=tied[path],
                roles=OF_PARAMETERS if parameter.requires_grad else (),
            )


def _module(node: Node, root: str, *, of_parameters: Collection[str]) -> NodeInfo:
    return NodeInfo(
        path=node.path,
        kind=NodeKind.LAYER if node.is_block else NodeKind.MODULE,
        parent=None if node.path == root else node.parent,
        class_name=written_class(node.module).__name__,
        type=node.layer_type,
        layer_index=node.layer_index,
        shape=(),
        dtype="",
        aliases=tuple(alias for alias in node.aliases if alias not in of_parameters),
        roles=OF_MODULES,
    )


def _tied(nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
    """The first path of every parameter, with its further ones."""
    paths: dict[int, list[str]] = {}
    for node in nodes:
        for name, parameter in own_parameters(node.module):
            paths.setdefault(id(parameter), []).append(joined(node.path, name))
    return {first: tuple(others) for first, *others in paths.values()}


def _limits(watch: Watch, *, is_on_host: bool) -> Iterator[str]:
    nodes = list(watch.selection.nodes)
    if watch.model is None:
        yield "detached: nothing is captured any more"
    elif is_compiled(watch.model, nodes):
        yield "compiled: hooks do not run in compiled code, so outputs of its modules are not looked at"
    frozen = sum(not parameter.requires_grad for node in nodes for _, parameter in own_parameters(node.module))
    if frozen:
        yield f"{frozen} parameters are frozen: they are captured once they are trained"
    running = engine()
    if running.name != "kernel":
        yield f"statistics by torch's own operations, which take longer: {running.detail}"
    if not is_on_host:
        yield "on a device statistics are known one step later; a precise breakpoint waits for its own tensor"
