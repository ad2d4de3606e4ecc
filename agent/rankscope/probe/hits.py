"""A hit as the run records it and as a subscriber is told of it: with all that its condition saw."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from rankscope._block import Block, Column
from rankscope.probe.events import HitEvent, Seen
from rankscope.probe.names import role_of
from rankscope.probe.rows import Row
from rankscope_proto.columns import SECTION_BY_NAME

_STEP = SECTION_BY_NAME["hits"].field("step").optional or 0
_SHOWN = 6
"""Digits of a number in a message."""


class Fired(NamedTuple):
    """What a breakpoint was when it fired.

    Attributes:
        name: What it is called.
        predicate: Its condition.
        mode: precise or relaxed.
        action: What the hit does.
        ordinal: Which hit of it in this process, from 1.
    """

    name: str
    predicate: str
    mode: str
    action: str
    ordinal: int


def hit_event(fired: Fired, row: Row, *, seen: Mapping[str, Any], time_ns: int) -> HitEvent:
    """The hit as subscribers see it.

    Args:
        fired: The breakpoint.
        row: What it fired on.
        seen: What its condition saw.
        time_ns: Wall clock now.
    """
    shown = {name: _plain(value) for name, value in seen.items()}
    subject = row.subject
    return HitEvent(
        time_ns,
        row.step,
        row.microstep,
        fired.name,
        subject.name,
        subject.module,
        role_of(subject.role),
        fired.ordinal,
        shown,
    )


def _plain(value: Any) -> Seen:
    """A value as a number or a text; a list, as a histogram is one, as its JSON."""
    if isinstance(value, bool):
        return int(value)
    return value if value is None or isinstance(value, int | float | str) else json.dumps(value)


def hit_block(fired: Fired, row: Row, *, event: HitEvent) -> Block:
    """The hit as a row of `hits`; what the condition found missing is left out."""
    numbers = {name: float(value) for name, value in event.seen.items() if isinstance(value, int | float)}
    texts = {name: value for name, value in event.seen.items() if isinstance(value, str)}
    columns: dict[str, Column] = {
        "time": [event.time_ns],
        "breakpoint": [fired.name],
        "predicate": [fired.predicate],
        "name": [row.subject.name],
        "module": [row.subject.module],
        "role": [row.subject.role],
        "step": [row.step],
        "microstep": [row.microstep],
        "phase": [row.phase],
        "mode": [fired.mode],
        "action": [fired.action],
        "count": [fired.ordinal],
        "seen_names": [*numbers],
        "seen_values": [*numbers.values()],
        "seen_n": [len(numbers)],
        "text_names": [*texts],
        "text_values": [*texts.values()],
        "text_n": [len(texts)],
        "present": [1 << _STEP],
    }
    return Block("hits", 1, columns)


def told(event: HitEvent) -> str:
    """The hit in a sentence."""
    seen = ", ".join(f"{name} = {_shown(value)}" for name, value in event.seen.items())
    return f"breakpoint {event.breakpoint} fired on {event.node} ({event.role}) in step {event.step}: {seen}"


def _shown(value: Seen) -> str:
    return f"{value:.{_SHOWN}g}" if isinstance(value, float) else str(value)
