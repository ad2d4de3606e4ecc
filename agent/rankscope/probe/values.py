"""Level 3: the values of tensors that somebody asked for, in the step in which they were asked for.

Training pays for one copy to host memory; on a device the copy travels while training goes on, and is read
when its event has passed. Hashing and cutting are the sealing thread's. Bytes are bounded, of a step, of the
whole run, and of what waits for the sealing thread (twice as many as of a step); what does not fit is a gap
that names the tensor and its bytes. Training never waits, and nothing is dropped in silence.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor

from rankscope._block import Block, Column
from rankscope._kept_values import KeptValues
from rankscope.probe.configuration import Values
from rankscope.probe.depth import Key
from rankscope.probe.elements import Chosen, chosen
from rankscope.probe.kept import Ask, Kept, Pending
from rankscope.probe.meters import Device, Event, device_of
from rankscope.probe.names import role_of
from rankscope.probe.ports import OpenStep, Recording
from rankscope.probe.rows import Subject
from rankscope_proto.names import GapCause, GapClass, Role

MOST_NAMED = 16
"""Tensors of a step that did not fit and are named one by one; a last row counts the others."""

KeysOf = Callable[[str, Collection[Role]], Sequence[Key]]
"""What a path or a glob names, of some roles (none: of all)."""

_EMPTY: Mapping[Key, tuple[Ask, ...]] = {}
_CLOSED = "the watch has come off"


class _Used:
    """Bytes of values that a process has kept in a run, whichever watch kept them."""

    def __init__(self) -> None:
        self.run_bytes = 0
        self._waiting: list[ref[KeptValues]] = []

    def waits(self, item: KeptValues) -> None:
        """An item is on its way to the sealing thread."""
        self._waiting.append(ref(item))

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the sealing thread has not taken yet."""
        there = [(waiting, item) for waiting in self._waiting if (item := waiting()) is not None]
        self._waiting = [waiting for waiting, _ in there]
        return sum(len(item.content.data) for _, item in there)


_used_in: "WeakKeyDictionary[Recording, _Used]" = WeakKeyDictionary()


class Keeper:
    """Keeps the values of one watch's tensors.

    `ask` may be called in any thread; the rest is called in the training thread, by the watch.

    Args:
        recording: Where the rows go.
        keys_of: What a path or a glob names in the model.
        values: Which elements are kept, and how many bytes, where who asks does not say.
        device_for: Makes what copies from a device; None: its memory is the host's.

    Attributes:
        asked: What is to be kept in the open step, and for whom; the same object until it changes.
        is_asked: Whether anything is.
    """

    def __init__(
        self,
        recording: Recording,
        keys_of: KeysOf,
        *,
        values: Values | None = None,
        device_for: Callable[[torch.device], Device | None] = device_of,
    ) -> None:
        self.values = values or Values()
        self.asked = _EMPTY
        self._recording = recording
        self._keys_of = keys_of
        self._device_for = device_for
        self._devices: dict[torch.device, Device | None] = {}
        self._used = _used_in.setdefault(recording, _Used())
        self._lock = threading.RLock()
        self._asks: list[Ask] = []
        self._ending: list[Ask] = []
        self._travelling: deque[tuple[Kept, list[KeptValues]]] = deque()
        self._refused: list[tuple[str, int]] = []
        self._unsupported: set[tuple[str, str]] = set()
        self._step: int | None = None
        self._step_bytes = 0
        self._is_closed = False

    @property
    def is_asked(self) -> bool:
        """Whether something is to be kept in the open step."""
        return self.asked is not _EMPTY

    def ask(
        self,
        nodes: Sequence[str],
        *,
        cause: str,
        roles: Collection[Role] = (),
        values: Values | None = None,
        step: int | None = None,
    ) -> Pending:
        """Keep values of nodes, once.

        Args:
            nodes: Paths or globs of modules and tensors.
            cause: What asks: a breakpoint's name, or `capture`.
            roles: In which roles; empty: in all.
            values: Which elements; None: those of the configuration.
            step: In which step; None: in the next that begins.
        """
        ask = Ask(tuple(nodes), tuple(roles), values or self.values, cause, step)
        with self._lock:
            if self._is_closed:
                ask.pending.end(_CLOSED)
            elif step is not None and self._step is not None and step <= self._step:
                ask.pending.end(f"step {step} is over, or has begun: the run is at step {self._step}")
            else:
                self._asks.append(ask)
        return ask.pending

    def begin(self, step: OpenStep) -> None:
        """A step begins, or another microstep of it: `asked` says what is to be kept in it."""
        self._settle(wait=False)
        if self._step != step.step:
            self._step, self._step_bytes = step.step, 0
        if self._asks:
            with self._lock:
                self._open(step.step)

    def _open(self, step: int) -> None:
        """Find out what is asked of a step, and end what was asked of one that is over."""
        asked: dict[Key, tuple[Ask, ...]] = {}
        for ask in tuple(self._asks):
            ask.step = step if ask.step is None else ask.step
            if ask.step < step:
                self._asks.remove(ask)
                self._end_unanswered(ask, _unseen(ask))
            elif ask.step == step:
                for key in dict.fromkeys(key for node in ask.nodes for key in self._keys_of(node, ask.roles)):
                    asked[key] = (*asked.get(key, ()), ask)
        self.asked = asked or _EMPTY

    def see(self, subject: Subject, tensor: Tensor, *, phase: int, microstep: int) -> None:
        """Keep a tensor for whoever asked for it; its values are those of now."""
        by_values: dict[Values, list[Ask]] = {}
        for ask in self.asked.get(subject.key, ()):
            by_values.setdefault(ask.values, []).append(ask)
        for values, asks in by_values.items():
            causes = [ask.cause for ask in asks]
            kept = self._keep(subject, tensor, values=values, phase=phase, microstep=microstep, causes=causes)
            for ask in asks:
                if isinstance(kept, Kept):
                    ask.pending.add(kept)
                else:
                    ask.pending.refused.append(kept)

    def keep(
        self,
        subject: Subject,
        tensor: Tensor,
        *,
        phase: int,
        microstep: int,
        cause: str,
        values: Values | None = None,
    ) -> Kept | None:
        """Keep a tensor at once, whether or not it was asked for; None: it could not be, and a gap says why."""
        of_which = values or self.values
        kept = self._keep(subject, tensor, values=of_which, phase=phase, microstep=microstep, causes=[cause])
        return kept if isinstance(kept, Kept) else None

    def end(self) -> None:
        """The step, or its microstep, is over: say what did not fit, and answer whoever has what they asked for."""
        self._state_refused()
        if self.is_asked:
            with self._lock:
                served = {ask for asks in self.asked.values() for ask in asks if ask.pending.kept}
                self._asks = [ask for ask in self._asks if ask not in served]
            self._ending += served
            self.asked = _EMPTY
        self._settle(wait=False)

    def close(self) -> None:
        """The watch comes off: wait for what is on its way, and answer everybody."""
        self.end()
        self._settle(wait=True)
        with self._lock:
            self._is_closed = True
            asks, self._asks = self._asks, []
        for ask in asks:
            is_over = ask.step is not None and ask.step == self._step
            self._end_unanswered(ask, _unseen(ask) if is_over else _CLOSED)

    def _keep(
        self,
        subject: Subject,
        tensor: Tensor,
        *,
        values: Values,
        phase: int,
        microstep: int,
        causes: Sequence[str],
    ) -> Kept | str:
        """The kept tensor, or why there is none."""
        what = chosen(tensor, values)
        if isinstance(what, str):
            return self._refuse_unsupported(subject, what)
        if reason := self._no_room(what.bytes, values):
            self._refused.append((f"{subject.name} ({role_of(subject.role)})", what.bytes))
            return f"{subject.name}: {what.bytes} bytes do not fit {reason}"
        self._step_bytes += what.bytes
        self._used.run_bytes += what.bytes
        host, event = self._copied(what)
        step = self._step or 0
        kept = Kept(subject, step=step, microstep=microstep, chosen=what, host=host, event=event)
        row = _columns(kept, what, phase=phase, part=str(values.part), time_ns=self._recording.clock.wall_ns())
        items = [KeptValues({**row, "cause": (cause,)}, kept.content) for cause in causes]
        self._used.waits(items[0])
        self._travelling.append((kept, items))
        return kept

    def _no_room(self, size: int, values: Values) -> str:
        if self._step_bytes + size > values.step_bytes:
            return f"into the {values.step_bytes} bytes of a step (step_bytes)"
        if self._used.run_bytes + size > values.run_bytes:
            return f"into the {values.run_bytes} bytes of the run (run_bytes)"
        if self._used.waiting_bytes + size > 2 * values.step_bytes:
            return f"beside what has not been sealed yet, at most {2 * values.step_bytes} bytes (twice step_bytes)"
        return ""

    def _copied(self, what: Chosen) -> tuple[Tensor, Event | None]:
        """A copy on the host, and the event after which it is there; None: it is there."""
        taken = what.taken()
        if taken.device not in self._devices:
            self._devices[taken.device] = self._device_for(taken.device)
        device = self._devices[taken.device]
        if device is None:
            return torch.empty(what.shape, dtype=taken.dtype, device="cpu").copy_(taken), None
        # Never used again: what was kept owns it.
        buffer = device.host_buffer(max(4, -(-what.bytes // 4))).view(torch.uint8)[: what.bytes]
        host = buffer.view(taken.dtype).view(what.shape)
        # The copy is in the order of the stream: what overwrites the tensor, or its memory, comes after it.
        return host, device.send(taken, host)

    def _end_unanswered(self, ask: Ask, reason: str) -> None:
        """Nothing was kept: say so to whoever waits, and in the run's data, since nobody waits for what a hit asks."""
        ask.pending.end(reason)
        if not ask.pending.refused:
            self._gap(GapCause.UNSUPPORTED, [f"values that {ask.cause} asked for: {reason}"])

    def _settle(self, *, wait: bool) -> None:
        """Hand over what has left its device, in order, and answer whoever waits for nothing else."""
        if not wait and any(device is not None and device.is_capturing() for device in self._devices.values()):
            return
        while self._travelling and self._travelling[0][0].has_arrived(wait=wait):
            for item in self._travelling.popleft()[1]:
                self._recording.append(item)
        if self._ending:
            arrived = [ask for ask in self._ending if ask.pending.have_arrived()]
            self._ending = [ask for ask in self._ending if ask not in arrived]
            for ask in arrived:
                ask.pending.end("")

    def _refuse_unsupported(self, subject: Subject, what: str) -> str:
        if (subject.name, what) not in self._unsupported:
            self._unsupported.add((subject.name, what))
            self._gap(GapCause.UNSUPPORTED, [f"{subject.name}: {what}"])
        return f"{subject.name}: {what}"

    def _state_refused(self) -> None:
        if not self._refused:
            return
        refused, self._refused = self._refused, []
        details = [f"values of {name}, {size} bytes, do not fit" for name, size in islice(refused, MOST_NAMED)]
        others = refused[MOST_NAMED:]
        if others:
            details.append(f"values of {len(others)} more tensors, {sum(size for _, size in others)} bytes, do not fit")
        self._gap(GapCause.BUDGET, details)

    def _gap(self, cause: GapCause, details: Sequence[str]) -> None:
        now, rows = self._recording.clock.wall_ns(), len(details)
        columns: dict[str, Column] = {
            "class": [GapClass.NOT_CAPTURED.code] * rows,
            "cause": [cause.value] * rows,
            "data_kind": [KeptValues.section] * rows,
            "step_from": [self._step or 0] * rows,
            "step_to": [self._step or 0] * rows,
            "start": [now] * rows,
            "end": [now] * rows,
            "detail": list(details),
        }
        self._recording.append(Block("gaps", rows, columns))


def _unseen(ask: Ask) -> str:
    nodes = ", ".join(ask.nodes)
    return f"nothing that {nodes} names was seen in step {ask.step}: it did not run, or the step did not come"


def _columns(kept: Kept, what: Chosen, *, phase: int, part: str, time_ns: int) -> dict[str, Column]:
    subject = kept.subject
    return {
        "name": (subject.name,),
        "module": (subject.module,),
        "role": (subject.role,),
        "step": (kept.step,),
        "microstep": (kept.microstep,),
        "phase": (phase,),
        "time": (time_ns,),
        "dtype": (what.dtype,),
        "shape": what.shape,
        "shape_n": (len(what.shape),),
        "full_shape": what.full_shape,
        "full_shape_n": (len(what.full_shape),),
        "part": (part,),
        "part_of": (what.part_of,),
    }
