"""The model as a graph of named nodes: which path, which layer, which type, and whose output to look at.

Paths are the ones a person wrote: the components that wrappers insert (`module.` of data parallelism,
`_orig_mod.` of the compiler, `_fsdp_wrapped_module.`, `_checkpoint_wrapped_module.`) are left out, so the
same tensor has the same path however it is trained. A module or a parameter met a second time (tied
weights) is the first node's alias, not a node of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rankscope_proto.names import LayerType

WRAPPED_NAMES = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
}
"""Wrapper classes and the name under which each keeps the module it wraps."""

_TYPE_WORDS: tuple[tuple[LayerType, tuple[str, ...]], ...] = (
    (LayerType.ROUTER, ("router",)),
    (LayerType.EXPERT, ("expert",)),
    (LayerType.MOE, ("moe",)),
    (LayerType.ATTENTION, ("attention", "attn")),
    (LayerType.NORM, ("norm",)),
    (LayerType.EMBEDDING, ("embed",)),
    (LayerType.CONV, ("conv",)),
    (LayerType.MLP, ("mlp", "feedforward", "feed_forward", "ffn")),
    (LayerType.HEAD, ("head", "classifier")),
)
_TYPE_NAMES = {"wte": LayerType.EMBEDDING, "wpe": LayerType.EMBEDDING, "ln_f": LayerType.NORM}


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
    """The module inside data-parallel, compiler and checkpoint wrappers."""
    name = WRAPPED_NAMES.get(type(module).__name__)
    inner = None if name is None else dict(children_of(module)).get(name)
    return module if inner is None else unwrapped(inner)


def data_parallel(model: nn.Module) -> DistributedDataParallel | None:
    """The data-parallel wrapper around the model, also inside the compiler's."""
    if isinstance(model, DistributedDataParallel):
        return model
    name = WRAPPED_NAMES.get(type(model).__name__)
    inner = None if name is None else dict(children_of(model)).get(name)
    return None if inner is None else data_parallel(inner)


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
    nodes: dict[int, Node] = {}
    _visit(top, nodes)
    _note_tied_parameters(nodes.values())
    return list(nodes.values())


def observed(nodes: list[Node]) -> list[Node]:
    """The nodes whose output is looked at: repeated blocks, and outside them every module with parameters of its own.

    The latter are the embeddings, the final norm and the head; in a model without blocks, every layer.
    """
    blocks = [node.path for node in nodes if node.is_block]
    return [
        node
        for node in nodes
        if node.is_block or (bool(own_parameters(node.module)) and not _is_inside(node.path, blocks))
    ]


def _visit(node: Node, nodes: dict[int, Node]) -> None:
    known = nodes.get(id(node.module))
    if known is not None:
        known.aliases.append(node.path)
        return
    nodes[id(node.module)] = node
    for name, child in children_of(node.module):
        _visit(_child(node, name, module=unwrapped(child)), nodes)


def _child(parent: Node, name: str, *, module: nn.Module) -> Node:
    is_block = _is_block(parent, name, module=module)
    own_type = guess_type(type(module).__name__, name)
    return Node(
        path=joined(parent.path, name),
        parent=parent.path,
        module=module,
        layer_index=int(name) if is_block else parent.layer_index,
        layer_type=parent.layer_type if own_type is LayerType.OTHER else own_type,
        is_block=is_block,
    )


def _is_block(parent: Node, name: str, *, module: nn.Module) -> bool:
    """A numbered member of a list, or of a sequence that repeats its class; experts are parts of a block."""
    if not name.isdigit() or parent.layer_type is LayerType.EXPERT:
        return False
    if isinstance(parent.module, nn.ModuleList):
        return True
    siblings = sum(type(other) is type(module) for _, other in children_of(parent.module))
    return isinstance(parent.module, nn.Sequential) and parent.layer_index is None and siblings > 1


def guess_type(class_name: str, name: str) -> LayerType:
    """The semantic type a module's class, else its name, speaks of; OTHER where neither does."""
    if name in _TYPE_NAMES:
        return _TYPE_NAMES[name]
    for text in (class_name.lower(), name.lower()):
        for layer_type, words in _TYPE_WORDS:
            if any(word in text for word in words):
                return layer_type
    return LayerType.OTHER


def _is_inside(path: str, blocks: list[str]) -> bool:
    return any(path.startswith(block + ".") for block in blocks)


def _note_tied_parameters(nodes: Iterable[Node]) -> None:
    """Write a parameter's later paths on the node that has its first."""
    first: dict[int, Node] = {}
    for node in nodes:
        for name, parameter in own_parameters(node.module):
            owner = first.setdefault(id(parameter), node)
            if owner is not node:
                owner.aliases.append(joined(node.path, name))
