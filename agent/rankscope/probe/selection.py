"""Which modules' outputs are looked at, and what a path or a glob names in the model."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.depth import Key
from rankscope.probe.graph import Node, joined, observed, own_parameters
from rankscope.probe.names import is_glob, is_named, names
from rankscope.probe.rows import OUTPUT_ROLES
from rankscope_proto.names import Role

OF_PARAMETERS = (Role.WEIGHT, Role.GRAD, Role.GRAD_INCREMENT, Role.UPDATE)
OF_MODULES = tuple(role for role in Role if role.code in OUTPUT_ROLES)
"""Roles of a parameter's tensors, and of what a module returns."""

NEAREST = 3


class Selection:
    """The nodes of a model, chosen by paths.

    Args:
        nodes: Its modules.
        loss: Path of the loss.

    Attributes:
        nodes: The same.
        node_at: The node at each path.
        version: Grows with every change of the model.
    """

    def __init__(self, nodes: Sequence[Node], loss: str) -> None:
        self._loss = loss
        self.version = 0
        self.take(nodes)

    def take(self, nodes: Sequence[Node]) -> None:
        """Choose among these modules: the model has changed."""
        self.nodes = nodes
        self.version += 1
        self._usual = {id(node) for node in observed(list(nodes))}
        self.node_at = {node.path: node for node in nodes}

    def outputs(self, configuration: CaptureConfiguration) -> list[Node]:
        """The modules whose output a configuration has looked at.

        Blocks, and layers outside of them, that the filters let through; and modules deeper inside that an include
        glob names: `blocks.*` names the blocks, `blocks.*.linear` the layer in each, `*` every module.
        """
        if configuration.level < 1 or not any(configuration.wants_role(role) for role in OF_MODULES):
            return []
        return [
            node
            for node in self.nodes
            if configuration.wants(node.path)
            and (id(node) in self._usual or any(names(glob, node.path) for glob in configuration.include))
        ]

    def keys(self, path: str, roles: Collection[Role] = ()) -> list[Key]:
        """What a path or a glob names, of these roles (none given: of all).

        Of a module its outputs, the gradients that arrive at them, and its own parameters' tensors; of a tensor its
        own.
        """
        found: dict[Key, None] = {}
        for node in self._around(path):
            is_whole = is_named(path, node.path)
            if is_whole:
                found.update(dict.fromkeys(_keys(node.path, OF_MODULES, wanted=roles)))
            for name, _ in own_parameters(node.module):
                tensor = joined(node.path, name)
                if is_whole or is_named(path, tensor):
                    found.update(dict.fromkeys(_keys(tensor, OF_PARAMETERS, wanted=roles)))
        if is_named(path, self._loss):
            found.update(dict.fromkeys(_keys(self._loss, (Role.ACTIVATION,), wanted=roles)))
        return list(found)

    def _around(self, path: str) -> Sequence[Node]:
        """The modules that are what a path or a glob names, or have it: of a path one or two, and no search."""
        if is_glob(path):
            return self.nodes
        near = (self.node_at.get(path), self.node_at.get(path.rpartition(".")[0]))
        return [node for node in near if node is not None]

    def left_out(self, configuration: CaptureConfiguration) -> str:
        """What the filters leave out of what a configuration's level has, for people; "": nothing."""
        paths = list(self.paths())
        found = [path for path in paths if configuration.wants(path)]
        parts = [f"{name} {', '.join(map(str, value))}" for name, value in _filters(configuration).items() if value]
        return f"{'; '.join(parts)}: {len(found)} of {len(paths)} paths are left" if parts else ""

    def nearest(self, text: str) -> list[str]:
        """The paths that look most like a text."""
        paths = list(self.paths())
        bare = text.strip("*.?")
        holding = [path for path in paths if bare and bare.lower() in path.lower()]
        return list(dict.fromkeys(holding[:NEAREST] + get_close_matches(bare or text, paths, NEAREST)))[:NEAREST]

    def paths(self) -> Iterator[str]:
        """The paths of all modules and parameters; the model's own is left out where it is ""."""
        for node in self.nodes:
            if node.path:
                yield node.path
            for name, _ in own_parameters(node.module):
                yield joined(node.path, name)


def _filters(configuration: CaptureConfiguration) -> dict[str, Sequence[str]]:
    return {name: getattr(configuration, name) for name in ("include", "exclude", "roles")}


def _keys(path: str, possible: Sequence[Role], *, wanted: Collection[Role]) -> Iterator[Key]:
    return ((path, role.code) for role in possible if not wanted or role in wanted)
