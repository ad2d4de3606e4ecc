"""What is captured of a model, when, and what is done then: one named object that can be written down.

A recording, another process or another source of live data takes the same configuration unchanged.
`as_json` and `from_json` are exact inverses. Nothing here imports torch.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Self, TypeVar, cast

from rankscope.errors import ConfigError
from rankscope_proto.names import Role

LEVELS = (0, 1, 2, 3)
"""Probe levels, each with all that the one before has: 0 phases and the loss's finiteness; 1 norms of
weights and gradients, finiteness of layer outputs; 2 the whole table, also of outputs and their gradients,
updates, module spans; 3 values of tensors, in steps in which something asks for them."""

MOST_TRIGGERS = 256
MOST_GLOBS = 64
MOST_SLICES = 64
MOST_SAMPLE = 1_000_000
MOST_TEXT = 1024
"""Characters of a name, a node and a glob; a condition has as many as TQL lets it have."""

MOST_STEPS = 1_000_000_000
"""Greatest stride, and most steps for which a level is raised."""

_MOST_BYTES = 2**62
_WORD_BITS = 64

_Word = TypeVar("_Word", bound=StrEnum)


def _word(kind: type[_Word], value: str, *, what: str) -> _Word:
    """A word of a closed set, also where it was given as text, as whoever writes it by hand does."""
    try:
        return kind(value)
    except ValueError as error:
        raise ConfigError(f"{what} is {value!r}; use one of {', '.join(kind)}") from error


def _bound(what: str, amount: int, *, most: int) -> None:
    if amount > most:
        raise ConfigError(f"{amount} {what} are too many; a configuration has at most {most}")


def _whole(**values: object) -> None:
    """Refuse what is no whole number, before it is compared or divided by."""
    for name, value in values.items():
        _of_kind(value, int, where=name, instead="a whole number")


def _short(whose: str, **texts: str | tuple[str, ...]) -> None:
    """Refuse texts that are none, or longer than any path."""
    for name, value in texts.items():
        for text in value if isinstance(value, tuple) else (value,):
            _of_kind(text, str, where=name, instead="text")
            if len(text) > MOST_TEXT:
                raise ConfigError(f"{whose}: {name} has a text of {len(text)} characters; use at most {MOST_TEXT}")


def _of_kind(value: object, kind: Any, *, where: str, instead: str) -> object:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{where} is {value!r}; write {instead}")
    return value


class Part(StrEnum):
    """How much of a tensor's values is kept."""

    WHOLE = "whole"
    SLICE = "slice"
    SAMPLE = "sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Which elements of a tensor are kept at level 3, and how many bytes at most.

    Attributes:
        part: The whole tensor, a slice, or a seeded sample of its elements.
        slices: Of a slice: start and stop in each leading dimension, as Python slices; further dimensions whole.
        elements: Of a sample: how many elements, 1 to 1,000,000; all where there are fewer.
        seed: Of a sample: the same seed and number of elements choose the same ones in every step and on every rank.
        step_bytes: Most bytes kept of one step; what does not fit is a gap.
        run_bytes: Most bytes kept by this process in the whole run, likewise.
    """

    part: Part = Part.WHOLE
    slices: tuple[tuple[int, int], ...] = ()
    elements: int = 4096
    seed: int = 0
    step_bytes: int = 64 * 2**20
    run_bytes: int = 2**30

    def __post_init__(self) -> None:
        object.__setattr__(self, "part", _word(Part, self.part, what="part"))
        _whole(elements=self.elements, seed=self.seed, step_bytes=self.step_bytes, run_bytes=self.run_bytes)
        if not 1 <= self.elements <= MOST_SAMPLE:
            raise ConfigError(f"a sample of {self.elements} elements cannot be kept; ask for 1 to {MOST_SAMPLE:,}")
        if (self.part is Part.SLICE) != bool(self.slices):
            raise ConfigError("slices=((start, stop), …) belong to part='slice', and to nothing else")
        _bound("slices", len(self.slices), most=MOST_SLICES)
        if self.seed.bit_length() > _WORD_BITS:
            raise ConfigError(f"seed has {self.seed.bit_length()} bits; use a whole number of at most {_WORD_BITS}")
        if not 0 <= min(self.step_bytes, self.run_bytes) <= max(self.step_bytes, self.run_bytes) <= _MOST_BYTES:
            raise ConfigError(f"step_bytes and run_bytes are 0 to {_MOST_BYTES:,} bytes each")


class Action(StrEnum):
    """What a hit does, beside being recorded."""

    NOTHING = "nothing"
    CAPTURE = "capture"
    LEVEL = "level"
    RAISE = "raise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """A breakpoint as it can be written down.

    Attributes:
        node: Path of a module or a tensor, or a glob of such paths.
        predicate: A TQL predicate about tensors, such as `tensor.nan_count > 0`.
        name: What it is called in the run's data; "": its node and predicate.
        action: What a hit does.
        precise: Judged before training goes on, that node only; else at most one step later, without waiting.
        level: Of `level`: the probe level that the node is raised to.
        steps: Of `level`: for how many steps.
        once: Removed by the first hit that counts.
        ignore: Hits that pass before the first that counts.
    """

    node: str
    predicate: str
    name: str = ""
    action: Action = Action.NOTHING
    precise: bool = False
    level: int = 2
    steps: int = 1
    once: bool = False
    ignore: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", _word(Action, self.action, what="action"))
        _of_kind(self.predicate, str, where="a breakpoint's predicate", instead="text")
        _short("a breakpoint", node=self.node, name=self.name)
        if not self.node or not self.predicate:
            raise ConfigError("a breakpoint has a node and a predicate, such as node='head', 'tensor.nan_count > 0'")
        _whole(level=self.level, steps=self.steps, ignore=self.ignore)
        if self.level not in LEVELS or not 1 <= self.steps <= MOST_STEPS or not 0 <= self.ignore <= MOST_STEPS:
            told = f"a level is 0 to 3, steps are 1 to {MOST_STEPS:,}, ignored hits 0 to {MOST_STEPS:,}"
            raise ConfigError(f"a breakpoint on {self.node} cannot be so: {told}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureConfiguration:
    """What a probe captures, and when.

    Attributes:
        name: What it is called in the run's data.
        level: Probe level, one of `LEVELS`.
        every: Stride of fully captured steps, 1 to 1,000,000,000: those whose number is a multiple of it.
        include: Globs a node's path must match one of; empty: any path.
        exclude: Globs it must match none of.
        roles: Roles that are captured; empty: all that the level has.
        values: Which values level 3 keeps.
        triggers: Breakpoints.
        budget: Most share of step time that capturing may cost, above 0; the stride grows until it holds. None: any.
        whole_updates: Keep the whole difference that an optimizer makes, and its table, instead of a sample's norm;
            costs a copy of the weights while it runs.
    """

    name: str = "watch"
    level: int = 1
    every: int = 10
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    values: Values = Values()
    triggers: tuple[Trigger, ...] = ()
    budget: float | None = 0.02
    whole_updates: bool = False

    def __post_init__(self) -> None:
        _whole(level=self.level, every=self.every)
        _short("the configuration", name=self.name, include=self.include, exclude=self.exclude)
        if self.level not in LEVELS:
            raise ConfigError(f"level {self.level} is not a probe level; use 0, 1, 2 or 3")
        if self.every < 1:
            raise ConfigError(f"every={self.every} captures no step; use 1 for every step, 10 for every tenth")
        if self.every > MOST_STEPS:
            raise ConfigError(f"every is beyond any step; use at most {MOST_STEPS:,}")
        _of_kind(self.whole_updates, bool, where="whole_updates", instead="true or false")
        if self.budget is not None:
            _of_kind(self.budget, int | float, where="budget", instead="a number or null")
        if self.budget is not None and not 0 < self.budget <= 1:
            raise ConfigError(f"budget={self.budget} is no share of step time; use 0.02 for 2 %, None for no limit")
        _bound("include", len(self.include), most=MOST_GLOBS)
        _bound("exclude", len(self.exclude), most=MOST_GLOBS)
        _bound("triggers", len(self.triggers), most=MOST_TRIGGERS)

    def wants(self, path: str) -> bool:
        """Whether the filters let a path through."""
        included = not self.include or any(fnmatchcase(path, glob) for glob in self.include)
        return included and not any(fnmatchcase(path, glob) for glob in self.exclude)

    def wants_role(self, role: Role) -> bool:
        """Whether a role is captured."""
        return not self.roles or role in self.roles

    def captures(self, step: int) -> bool:
        """Whether a step is captured in full by its number alone."""
        return self.level >= 1 and step % self.every == 0

    def as_json(self) -> str:
        """The configuration as a JSON object; every field is written."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The configuration that `as_json` wrote; fields left out have their defaults.

        Raises:
            ConfigError: It is no such object; names the field.
        """
        return cls.from_members(parsed(text))

    @classmethod
    def from_members(cls, members: object) -> Self:
        """The configuration of what `parsed` read; likewise."""
        return cast("Self", _read(cls, members, where="the configuration"))


def parsed(text: str) -> object:
    """What JSON says.

    Raises:
        ConfigError: It is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"a capture configuration is a JSON object: {error}") from error


_PARTS: Mapping[str, type[Any]] = {"values": Values, "triggers": Trigger, "roles": Role, "part": Part, "action": Action}
_LISTS = {"include", "exclude", "roles", "triggers", "slices"}
_SWITCHES = {"precise", "once", "whole_updates"}
_TEXTS = {"name", "node", "predicate", "include", "exclude"}


def _read(kind: type[Any], value: object, *, where: str) -> Any:
    """A dataclass or a word of the configuration, from what JSON has of it."""
    if not is_dataclass(kind):
        words = [str(word) for word in cast("Iterable[object]", kind)]
        if value not in words:
            raise ConfigError(f"{where} is {value!r}; use one of {', '.join(words)}")
        return kind(value)
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is {value!r}; write a JSON object")
    members = cast("dict[str, object]", value)
    known = [field.name for field in fields(kind)]
    if unknown := members.keys() - set(known):
        raise ConfigError(f"{where} has no {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    read = {name: _member(name, member, where=f"{where}'s {name}") for name, member in members.items()}
    try:
        return kind(**read)
    except TypeError as error:
        raise ConfigError(f"{where} is not whole: {error}") from error


def _member(name: str, value: object, *, where: str) -> object:
    if name not in _LISTS:
        return _item(name, value, where=where)
    if not isinstance(value, list):
        raise ConfigError(f"{where} is {value!r}; write a JSON list")
    return tuple(_item(name, item, where=where) for item in cast("list[object]", value))


def _item(name: str, value: object, *, where: str) -> object:
    if name in _PARTS:
        return _read(_PARTS[name], value, where=where)
    if name in _TEXTS:
        return _of_kind(value, str, where=where, instead="text")
    if name in _SWITCHES:
        return _of_kind(value, bool, where=where, instead="true or false")
    if name == "budget":
        return value if value is None else _of_kind(value, int | float, where=where, instead="a number or null")
    if name == "slices":
        pair = cast("list[object]", _of_kind(value, list, where=where, instead="two whole numbers"))
        if len(pair) != 2:
            raise ConfigError(f"{where} is {value!r}; write two whole numbers")
        return tuple(_of_kind(bound, int, where=where, instead="two whole numbers") for bound in pair)
    return _of_kind(value, int, where=where, instead="a whole number")
