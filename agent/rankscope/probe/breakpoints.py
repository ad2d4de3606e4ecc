"""Breakpoints: conditions in TQL on the tensors of a model, judged while it trains.

A precise breakpoint is asked in the hook, of the one row that was just measured, before training goes on. The
relaxed ones are asked together when a step has ended, of the rows that have become known, and share one reading
of them; on a device those are the rows of the step before, since nothing waits for them. Either kind sees
every row of its nodes: while it is armed they are measured in every step.

What goes wrong in here, a callback's exception too, is counted and said, and training goes on. Only
`BreakpointHit` reaches it, where the breakpoint's action is to raise.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from rankscope.errors import BreakpointHit, ConfigError
from rankscope.probe.configuration import Action, Trigger
from rankscope.probe.contract import Breakpoint, OnHit
from rankscope.probe.depth import Depth, Key
from rankscope.probe.events import HitEvent
from rankscope.probe.hits import Fired, hit_block, hit_event, told
from rankscope.probe.ports import Recording
from rankscope.probe.predicates import Predicate, Surroundings
from rankscope.probe.rows import Columns, Row, Subject
from rankscope.tql.evaluate import LiveRows
from rankscope.tql.fields import Entity
from rankscope_proto.names import Role

logger = logging.getLogger(__name__)

KINDS_KEPT = 4
"""Kinds of steps (captured in full, others, …) for which it is remembered which rows concern whom."""


class Actions(Protocol):
    """What a hit may do beside being recorded."""

    def tell(self, event: HitEvent, /) -> object:
        """Tell subscribers."""
        ...

    def keep(self, row: Row, values: Tensor | None, /, *, cause: str) -> object:
        """Keep the values of a row's tensor: these; None: those that it has in the next step."""
        ...

    def raise_level(self, row: Row, level: int, /, *, steps: int, cause: str) -> object:
        """Look at a row's node as a probe level does, for the next so many steps."""
        ...


class Armed:
    """One breakpoint: a `Breakpoint`.

    Args:
        trigger: As it was asked for.
        predicate: Its condition, checked.
        callback: Called with each hit.
        changed: Called when it is enabled, disabled or removed.
    """

    def __init__(
        self, trigger: Trigger, predicate: Predicate, *, callback: OnHit | None, changed: Callable[[], object]
    ) -> None:
        self.trigger = trigger
        self.predicate = predicate
        self.callback = callback
        self.name = trigger.name or f"{trigger.node}: {trigger.predicate}"
        self.hits = 0
        self.failures = 0
        self.is_enabled = True
        self.is_removed = False
        self._changed = changed
        self._to_ignore = trigger.ignore

    def __repr__(self) -> str:
        state = "removed" if self.is_removed else "enabled" if self.is_enabled else "disabled"
        return f"<Breakpoint {self.name} {state} hits={self.hits}>"

    def enable(self) -> None:
        """Judge it again."""
        self.is_enabled = not self.is_removed
        self._changed()

    def disable(self) -> None:
        """Judge it no more until it is enabled."""
        self.is_enabled = False
        self._changed()

    def remove(self) -> None:
        """Take it away."""
        self.is_enabled, self.is_removed = False, True
        self._changed()

    def counts(self) -> bool:
        """Whether one more hit counts; those to ignore do not."""
        if self._to_ignore:
            self._to_ignore -= 1
            return False
        self.hits += 1
        return True


Places = dict[int, tuple[list[Subject], list[tuple[Armed, tuple[int, ...]]]]]
"""Which rows of a kind of step concern whom, by their number: what the rows are about, and the places of each."""


class Breakpoints:
    """All breakpoints of one probe.

    Args:
        recording: Takes the hits.
        actions: What hits do.
        around: What conditions may name beside the row.

    Attributes:
        version: Grows with every change of what is armed.
    """

    def __init__(self, recording: Recording, actions: Actions, *, around: Surroundings) -> None:
        self._recording = recording
        self._around = around
        self._actions = actions
        self._armed: tuple[Armed, ...] = ()
        self._precise: Mapping[Key, list[Armed]] = {}
        self._relaxed: tuple[tuple[Armed, ...], Places] = (), {}
        self._together, self._alone = Columns(), Columns()
        # Two, since a callback that is called while rows are judged may wait for a thread that changes what is armed.
        self._judging, self._arming = threading.RLock(), threading.RLock()
        self.version = 0

    def add(self, trigger: Trigger, predicate: Predicate, *, callback: OnHit | None = None) -> Armed:
        """Arm a breakpoint."""
        armed = Armed(trigger, predicate, callback=callback, changed=self._sort)
        with self._arming:
            self._armed = (*self._armed, armed)
            self._sort()
        return armed

    def renew(self, around: Surroundings, checked: Callable[[Trigger], Predicate]) -> None:
        """The model has changed: judge what the nodes name now; what has been seen and counted so far stays.

        Args:
            around: What conditions may name beside the row.
            checked: Checks a breakpoint against the model as it is now.
        """
        with self._arming:
            self._around = around
            for armed in self._armed:
                try:
                    depths = checked(armed.trigger).depths
                except ConfigError as error:
                    logger.warning(
                        "breakpoint %s has nothing to judge in the model as it is now: %s", armed.name, error
                    )
                else:
                    armed.predicate = replace(armed.predicate, depths=depths)
            self._sort()

    def clear(self) -> None:
        """Remove them all."""
        for armed in self._armed:
            armed.remove()

    def _sort(self) -> None:
        """Something was added, switched or removed."""
        with self._arming:
            self._armed = tuple(armed for armed in self._armed if not armed.is_removed)
            enabled = [armed for armed in self._armed if armed.is_enabled]
            precise: dict[Key, list[Armed]] = {}
            for armed in enabled:
                for key in armed.predicate.depths if armed.trigger.precise else ():
                    precise.setdefault(key, []).append(armed)
            self._precise = precise
            self._relaxed = tuple(armed for armed in enabled if not armed.trigger.precise), {}
            self.version += 1

    def depths(self) -> Iterator[tuple[Key, Depth]]:
        """How closely tensors must be looked at for what is armed."""
        for armed in self._armed:
            if armed.is_enabled:
                yield from armed.predicate.depths.items()
            if armed.is_enabled and armed.predicate.has_ratios:
                yield from (((path, Role.WEIGHT.code), Depth.NORMS) for path, _ in armed.predicate.depths)

    def is_precise(self, key: Key) -> bool:
        """Whether a tensor is judged before training goes on."""
        return key in self._precise

    def measured(self, row: Row, values: Tensor) -> None:
        """Judge the precise ones of a row.

        Raises:
            BreakpointHit: One fired whose action is to raise.
        """
        armed = self._precise.get(row.subject.key)
        if armed is None:
            return
        with self._judging:
            live = self._live([row], self._alone, armed=armed)
            hits = [self._judge(each, [row], live=live, values=values) for each in tuple(armed)]
        _raise_first(hits)

    def settled(self, rows: Sequence[Row]) -> None:
        """Judge the relaxed ones of the rows of a step.

        Raises:
            BreakpointHit: One fired whose action is to raise.
        """
        relaxed, places_of = self._relaxed  # at once: another thread may change it
        if not relaxed or not rows:
            return
        hits: list[BreakpointHit | None] = []
        with self._judging:
            live = self._live(rows, self._together, armed=relaxed)
            parts: dict[tuple[int, ...], LiveRows] = {}
            for armed, places in _concerned(rows, relaxed, places_of=places_of):
                some = parts.get(places)
                if some is None:  # those of the same rows share one reading of them
                    some = parts[places] = live if len(places) == len(rows) else live.at(places)
                hits.append(self._judge(armed, [rows[place] for place in places], live=some))
        _raise_first(hits)

    def _live(self, rows: Sequence[Row], columns: Columns, *, armed: Sequence[Armed]) -> LiveRows:
        """The rows as conditions read them."""
        batch: dict[str, Any] = {**self._around.header, **columns.block(rows).columns}
        for name in {name for each in armed for name in each.predicate.looked_up}:
            texts = self._around.modules[name]
            batch[name] = [texts.get(row.subject.module) for row in rows]
        return LiveRows(Entity.TENSOR, batch)

    def _judge(
        self, armed: Armed, rows: Sequence[Row], *, live: LiveRows, values: Tensor | None = None
    ) -> BreakpointHit | None:
        """Ask one condition of rows, and do what its hits do; what they raise waits until all have been judged."""
        try:
            held = armed.predicate.evaluator.matches(live)
        except Exception as error:  # one breakpoint's fault is not the others'
            armed.remove()
            logger.warning("breakpoint %s is removed, since it cannot be judged", armed.name, exc_info=error)
            return None
        raised: BreakpointHit | None = None
        for place, row in enumerate(rows) if True in held else ():
            if held[place] and armed.is_enabled and armed.counts():
                hit = self._hit(armed, row, seen=armed.predicate.evaluator.seen(place), values=values)
                raised = raised or hit
        return raised

    def _hit(self, armed: Armed, row: Row, *, seen: Mapping[str, Any], values: Tensor | None) -> BreakpointHit | None:
        trigger = armed.trigger
        mode = "precise" if trigger.precise else "relaxed"
        fired = Fired(armed.name, trigger.predicate, mode, str(trigger.action), armed.hits)
        event = hit_event(fired, row, seen=seen, time_ns=self._recording.clock.wall_ns())
        self._recording.append(hit_block(fired, row, event=event))
        self._actions.tell(event)
        if trigger.once:
            armed.remove()
        self._call_back(armed, event)
        return self._act(armed, row, event=event, values=values)

    @staticmethod
    def _call_back(armed: Armed, event: HitEvent) -> None:
        if armed.callback is None:
            return
        try:
            armed.callback(event)
        except Exception as error:  # the boundary to the caller's own code
            armed.failures += 1
            if armed.failures == 1:
                text = "the callback of breakpoint %s failed; training goes on, and further failures are only counted"
                logger.warning(text, armed.name, exc_info=error)

    def _act(self, armed: Armed, row: Row, *, event: HitEvent, values: Tensor | None) -> BreakpointHit | None:
        trigger = armed.trigger
        if trigger.action == Action.CAPTURE:
            self._actions.keep(row, values, cause=armed.name)
        elif trigger.action == Action.LEVEL:
            self._actions.raise_level(row, trigger.level, steps=trigger.steps, cause=armed.name)
        return BreakpointHit(told(event), event) if trigger.action == Action.RAISE else None


def _concerned(
    rows: Sequence[Row], relaxed: Sequence[Armed], *, places_of: Places
) -> list[tuple[Armed, tuple[int, ...]]]:
    """Which rows concern whom. Steps of a kind have the same rows, so that it is worked out once for each kind."""
    subjects = [row.subject for row in rows]
    known = places_of.get(len(rows))
    if known is not None and known[0] == subjects:
        return known[1]
    at: dict[Key, list[int]] = {}
    for place, subject in enumerate(subjects):
        at.setdefault(subject.key, []).append(place)
    found = [
        (armed, tuple(sorted(place for key in at.keys() & armed.predicate.depths.keys() for place in at[key])))
        for armed in relaxed
    ]
    concerned = [(armed, places) for armed, places in found if places]
    if len(places_of) >= KINDS_KEPT:
        places_of.clear()
    places_of[len(rows)] = subjects, concerned
    return concerned


def _raise_first(hits: Iterable[BreakpointHit | None]) -> None:
    for hit in hits:
        if hit is not None:
            raise hit


if TYPE_CHECKING:
    _conforms: type[Breakpoint] = Armed
