"""The calls of `torch.distributed`, wrapped: entry, exit, what and how much, before the call and after it.

Only the names in `torch.distributed` itself are replaced. Inside its modules functions call and compare each other by
names of their own, and who took a name before (`from torch.distributed import all_reduce`) has the plain function:
all of these are left to the flight recorder. A wrapped call adds no collective; what goes wrong in a wrapper is
counted, never raised. While a graph is compiled the plain function is called, and the graph is as without.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from threading import local
from typing import TYPE_CHECKING, Any

import torch

from rankscope._labels import text_of
from rankscope.collectives.groups import Group, Groups
from rankscope.collectives.notes import Note
from rankscope.collectives.operations import INPUTS, Function, Operation, operation_of

if TYPE_CHECKING:
    from rankscope._recording import Recording

MOST_WAITING = 20_000
"""Notes that wait to become rows at most: minutes of a training that nobody reads."""

FUTURE_EVERY = 4
"""Of so many collectives that the caller does not wait for, one's end is looked at: a callback costs 7 µs."""

is_compiling = torch.compiler.is_compiling


class Inside(local):
    """Where a thread is.

    Attributes:
        hook: Whether it is inside a communication hook, whose future tells the end.
    """

    hook = False


class Calls:
    """Notes of the calls of `torch.distributed`.

    Args:
        recording: Whose calls they are.
        groups: The process's groups.
        default_group: Gives torch's default group.

    Attributes:
        is_armed: Whether notes are made.
        waiting: Calls that have returned, oldest first.
        open: Calls that have not.
        lost: Notes that found no room.
        inside: Where this thread is.
    """

    def __init__(self, recording: "Recording", groups: Groups, *, default_group: Callable[[], Any]) -> None:
        self._recording = recording
        self._groups = groups
        self._by_id = groups.by_id
        self._default_group = default_group
        self._now = recording.mono_ns
        self._wrapped: dict[str, tuple[Function, Function]] = {}
        self.is_armed = True
        self.waiting: deque[Note] = deque()
        self.open: dict[Note, Note] = {}
        self.lost = 0
        self.inside = Inside()

    def wrap(self, module: Any) -> None:
        """Replace the functions of a module that are there."""
        for name in INPUTS:
            real = getattr(module, name, None)
            if callable(real):
                call = _wrapper(self, real, operation=operation_of(name, real))
                self._wrapped[name] = (real, call)
                setattr(module, name, call)

    def unwrap(self, module: Any) -> None:
        """Put them back; one that another has wrapped since stays, and only passes calls on."""
        self.is_armed = False
        for name, (real, call) in self._wrapped.items():
            if getattr(module, name, None) is call:
                setattr(module, name, real)
        self._wrapped.clear()

    def has_unnumbered(self, group: Group) -> bool:
        """Whether a call is open in a group that has no number."""
        return any(note.group is group and not note.operation.is_numbered for note in tuple(self.open.values()))

    def begin(self, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any], /) -> Note | None:
        """A call begins; None: nothing is noted of it."""
        recording = self._recording
        if not recording.armed:
            return None
        try:
            # Written out, and not in methods: this is in every call of a training, and each method costs it 0.1 µs.
            count = len(args)
            at = operation.input_at
            value: Any = args[at] if count > at else kwargs.get(operation.input)
            at = operation.group_at
            given: Any = args[at] if count > at else kwargs.get("group")
            if operation.is_batch:
                given = value[0].group
            process_group: Any = self._default_group() if given is None else given
            group = self._by_id.get(id(process_group))
            if group is None or not group.is_of(process_group):
                group = self._groups.of(process_group)
            number = process_group._get_sequence_number_for_group() + 1
            note = Note(group, process_group, operation, number)
            note.describe(value)
            if kwargs or count > operation.least:
                note.is_async, note.reduction = operation.manner(args, kwargs)
            note.step = step = recording.current_step()
            note.inside = (step and step.inner) or recording.current.get()
            self.open[note] = note
            note.entry = self._now()
            if recording.beacon is not None and operation.is_numbered:
                self._tell_entered(note)
        except (AttributeError, IndexError):  # a wrong argument, or no member of the group: the call itself says it
            return None
        except Exception as error:  # noqa: BLE001  # must not reach training
            recording.note_fault(f"{type(error).__qualname__} before a collective: {text_of(error)}")
            return None
        return note

    def end(self, note: Note, result: Any, *, is_failed: bool) -> None:
        """It has returned, or raised."""
        now_ns = self._now()
        try:
            # A call that raised is not over: where its group stands still is what a hang is judged by.
            if note.ticket is not None and not is_failed and self._recording.beacon is not None:
                self._recording.beacon.left(note.ticket, now_ns)
            note.is_failed = is_failed
            process_group, note.process_group = note.process_group, None
            if process_group is not None:
                note.moved = process_group._get_sequence_number_for_group() + 1 - note.number
            if note.is_host and not is_failed:
                self._tell_exit(note, result, now_ns=now_ns)
        except Exception as error:  # noqa: BLE001  # must not reach training
            self._recording.note_fault(f"{type(error).__qualname__} after a collective: {text_of(error)}")
        finally:
            self.open.pop(note, None)
            self._keep(note)

    def _tell_entered(self, note: Note) -> None:
        beacon, group = self._recording.beacon, note.group
        if beacon is None:
            return
        if group.handle is None:
            group.handle = beacon.group(group.name)
        shape = note.shapes[0] if note.shapes else ""
        cseq = max(0, note.number - group.apart)
        note.ticket = beacon.entered(group.handle, cseq, note.operation.name, note.entry, shape)

    def _tell_exit(self, note: Note, result: Any, *, now_ns: int) -> None:
        if not note.is_async:
            note.exit, note.exit_source = now_ns, "call"
        elif note.number % FUTURE_EVERY == 0 and note.operation.is_numbered and not self.inside.hook:
            result.get_future().add_done_callback(partial(self._is_over, note))

    def _is_over(self, note: Note, _future: object) -> None:
        note.exit, note.exit_source = self._now(), "future"

    def _keep(self, note: Note) -> None:
        if not note.moved and (note.operation.is_numbered or note.is_failed):
            return  # refused, coalesced, or given to another back end than the one that counts
        if note.moved != note.numbers:
            note.group.add_unnumbered(note.number, note.moved - note.numbers)
        if len(self.waiting) < MOST_WAITING:
            self.waiting.append(note)
        else:
            self.lost += 1


def _wrapper(calls: Calls, real: Function, *, operation: Operation) -> Function:
    @wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        # First, and by itself: where a graph is compiled nothing else of this may be looked at.
        if is_compiling():
            return real(*args, **kwargs)
        note = calls.begin(operation, args, kwargs) if calls.is_armed else None
        if note is None:
            return real(*args, **kwargs)
        try:
            result = real(*args, **kwargs)
        except BaseException:
            calls.end(note, None, is_failed=True)
            raise
        calls.end(note, result, is_failed=False)
        return result

    return call
