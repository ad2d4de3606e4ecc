"""Names of nodes, roles, phases and flags as a person reads them, from what rows have of them. Free of torch."""

import functools
import re
from fnmatch import fnmatchcase

from rankscope_proto.names import TENSOR_FLAGS, Phase, Role

_PHASES, _ROLES = tuple(Phase), tuple(Role)


_GLOB = re.compile(r"[*?\[]")
"""What makes a path a glob."""


def is_glob(node: str) -> bool:
    """Whether it may name several nodes."""
    return _GLOB.search(node) is not None


def is_named(node: str, path: str) -> bool:
    """Whether a path is the one that is asked for, or one of those that a glob names."""
    return path == node or (is_glob(node) and names(node, path))


def names(glob: str, path: str) -> bool:
    """Whether a glob names a path itself, and not only something around it: its last part stands for one component."""
    around, _, last = glob.rpartition(".")
    parent, _, name = path.rpartition(".")
    return fnmatchcase(name, last) and (not around or fnmatchcase(parent, around))


def base_name(name: str) -> str:
    """The path of a tensor without the index of an output: of `blocks.1[0]`, `blocks.1`."""
    return name.partition("[")[0]


def role_of(code: int) -> Role:
    """The role of a code."""
    return _ROLES[code - 1]


def phase_of(code: int) -> Phase:
    """The phase of a code, from 1."""
    return _PHASES[code - 1]


@functools.lru_cache(maxsize=256)
def flag_names(flags: int) -> frozenset[str]:
    """The names of the bits that are set."""
    return frozenset(name for name, bit in TENSOR_FLAGS.items() if flags & bit)
