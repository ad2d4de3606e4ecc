"""The model as a graph of named nodes: which path, which layer, which type, and whose output to look at.

Paths are the ones a person wrote: the components that wrappers insert (`module.` of data parallelism,
`_orig_mod.` of the compiler, `_fsdp_wrapped_module.`, `_checkpoint_wrapped_module.`) are left out, so the
same tensor has the same path however it is trained. A module or a parameter met a second time (tied
weights) is the first node's alias, not a node of its own.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rankscope.probe.adapters import Adapter
from rankscope_proto.names import LayerType

WRAPPED_NAMES = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "ActivationWrapper": "_checkpoint_wrapped_module",
}
"""Wrapper classes, also as bases of others, and the name under which each keeps the module it wraps."""

_NUMBER = re.compile(r"\d+$")

_MIXED_IN = {"FSDPModule", "ReplicateModule", "DDP"}
"""Classes that torch puts before a module's own: `fully_shard` makes a `Linear` an `FSDPLinear`."""


@dataclass(slots=True)
class Node:
    """One module of the model.

    Attributes:
        path: Path without wrapper components.
        parent: Path of the parent; "" for the root.
        module: The module.
        layer_index: Number of the nearest enclosing repeated block, if any.
        layer_type: Semantic type, its own or the nearest enclosing module's.
        is_block: Whether it is itself a repeated block.
        aliases: Other paths of this module, and of parameters tied to its own.
    """

    path: str
    parent: str
    module: nn.Module
    layer_index: int | None
    layer_type: LayerType
    is_block: bool
    aliases: list[str] = field(default_factory=list[str])


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside data-parallel, sharding, compiler and checkpoint wrappers."""
    inner = _inside(module)
    return module if inner is None else unwrapped(inner)


def data_parallel(model: nn.Module) -> DistributedDataParallel | None:
    """The data-parallel wrapper around the model, also inside the compiler's."""
    if isinstance(model, DistributedDataParallel):
        return model
    inner = _inside(model)
    return None if inner is None else data_parallel(inner)


def _inside(module: nn.Module) -> nn.Module | None:
    """What a wrapper wraps; None: it is none."""
    names = [name for base in type(module).__mro__ if (name := WRAPPED_NAMES.get(base.__name__))]
    return dict(children_of(module)).get(names[0]) if names else None


def written_class(module: nn.Module) -> type:
    """The class that the author of the model wrote: sharding and parametrisation put one of their own before it."""
    lineage = type(module).__mro__
    for place, base in enumerate(lineage):
        if base.__name__ in _MIXED_IN and base.__module__.startswith("torch.distributed"):
            return lineage[place + 1]
    return lineage[1] if lineage[0].__module__ == "torch.nn.utils.parametrize" else lineage[0]


def children_of(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The module's children with their names; `named_children` would leave out a child met twice."""
    children = cast("dict[str, nn.Module | None]", vars(module)["_modules"])
    return [(name, child) for name, child in children.items() if child is not None]


def own_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The module's own parameters with their names, also those that are tied to others."""
    parameters = cast("dict[str, nn.Parameter | None]", vars(module)["_parameters"])
    return [(name, parameter) for name, parameter in parameters.items() if parameter is not None]


def joined(path: str, name: str) -> str:
    """The path of what is called `name` in the module at `path`."""
    return f"{path}.{name}" if path else name


def nodes_of(model: nn.Module, root: str = "") -> list[Node]:
    """Every module once, parents before children, in the order the model declares them; `root` is the model's path."""
    top = Node(root, "", unwrapped(model), None, LayerType.OTHER, is_block=False)
    nodes = _Visit(top).nodes
    _note_tied_parameters(nodes)
    return nodes


def without_values(nodes: Sequence[Node]) -> list[Node]:
    """The same graph of modules that have names, classes and shapes and hold nothing.

    That is what is left of a model once it is watched no more: it can be described, and its memory is given back.
    """
    known: dict[int, nn.Parameter] = {}
    # Classes of our own, since the author's may do more than hold: something of their own at their end, for one.
    written = {id(node.module): written_class(node.module) for node in nodes}
    classes = {kind: type(kind.__name__, (nn.Module,), {"__module__": kind.__module__}) for kind in {*written.values()}}
    return [
        replace(node, module=_outline(classes[written[id(node.module)]](), node.module, known=known)) for node in nodes
    ]


def _outline(outline: nn.Module, module: nn.Module, *, known: dict[int, nn.Parameter]) -> nn.Module:
    for name, parameter in own_parameters(module):
        if id(parameter) not in known:
            values = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
            known[id(parameter)] = nn.Parameter(values, requires_grad=parameter.requires_grad)
        outline.register_parameter(name, known[id(parameter)])
    return outline


def state_of(nodes: Sequence[Node]) -> int:
    """A number that is another when modules were replaced, added or removed, parameters frozen, unfrozen or moved.

    A parameter that was replaced by one of its shape and type (`load_state_dict(assign=True)`) changes nothing.
    """
    parts: list[object] = []
    for node in nodes:
        parts.extend(id(child) for _, child in children_of(node.module))
        for name, parameter in own_parameters(node.module):
            parts += (name, parameter.requires_grad, parameter.shape, parameter.dtype, parameter.is_cpu)
    return hash(tuple(parts))


def observed(nodes: list[Node]) -> list[Node]:
    """The nodes whose output is looked at: repeated blocks, and outside them every module with parameters of its own.

    The latter are the embeddings, the final norm and the head; in a model without blocks, every layer.
    """
    blocks = {node.path for node in nodes if node.is_block}
    return [
        node
        for node in nodes
        if node.is_block or (own_parameters(node.module) and not any(enclosing(node.path, blocks)))
    ]


def enclosing(path: str, blocks: Collection[str]) -> Iterator[str]:
    """The blocks that a path lies in, or is, the nearest first."""
    while path:
        if path in blocks:
            yield path
        path = path.rpartition(".")[0]


class _Visit:
    """Makes the nodes of a model.

    Attributes:
        nodes: Found so far, parents before children.
    """

    def __init__(self, top: Node) -> None:
        self.nodes: list[Node] = []
        self._known: dict[int, Node] = {}
        self._top = top
        self._adapter = Adapter.of(_names_in(top.module))
        self._visit(top)

    def _visit(self, node: Node) -> None:
        known = self._known.get(id(node.module))
        if known is not None:
            known.aliases.append(node.path)
            return
        self._known[id(node.module)] = node
        self.nodes.append(node)
        children = [(name, unwrapped(child)) for name, child in children_of(node.module)]
        classes = Counter(written_class(child) for _, child in children)
        for name, child in children:
            self._visit(self._child(node, name, module=child, is_repeated=classes[written_class(child)] > 1))

    def _child(self, parent: Node, name: str, *, module: nn.Module, is_repeated: bool) -> Node:
        index = _block_number(parent, name, is_repeated=is_repeated)
        return Node(
            path=joined(parent.path, name),
            parent=parent.path,
            module=module,
            layer_index=parent.layer_index if index is None else index,
            layer_type=self._adapter.type_of(
                written_class(module).__name__, name, parent=parent.layer_type, is_top=parent is self._top
            ),
            is_block=index is not None,
        )


def _names_in(module: nn.Module) -> Iterator[str]:
    for name, child in children_of(module):
        yield name
        yield from _names_in(unwrapped(child))


def _block_number(parent: Node, name: str, *, is_repeated: bool) -> int | None:
    """The number of a repeated block, None of what is none; experts are parts of a block.

    A block is a numbered member of a list, or of a sequence or an inner list that repeats its class.
    """
    number = _NUMBER.search(name)
    if number is None or parent.layer_type is LayerType.EXPERT:
        return None
    if isinstance(parent.module, nn.ModuleList):
        is_block = is_repeated or parent.layer_index is None
    else:
        is_block = isinstance(parent.module, nn.Sequential) and parent.layer_index is None and is_repeated
    return int(number[0]) if is_block else None


def _note_tied_parameters(nodes: Iterable[Node]) -> None:
    """Write a parameter's later paths on the node that has its first."""
    first: dict[int, Node] = {}
    for node in nodes:
        for name, parameter in own_parameters(node.module):
            owner = first.setdefault(id(parameter), node)
            if owner is not node:
                owner.aliases.append(joined(node.path, name))
