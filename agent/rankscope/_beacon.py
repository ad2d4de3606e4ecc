"""Where this process stands, told from outside: in memory that the node's agent reads while this process cannot speak.

A process that is stopped, that waits in a collective or that died says nothing itself. So it notes on the way which
step it is in, which collective it entered last in each group and which was over last, and its sealing thread beats.
The memory is an anonymous file, which the agent opens through /proc and keeps: it outlives this process, lies on no
disk, so that no write waits for one, and cannot be cut short under a writer. Promises: a note takes about a
microsecond, waits for nothing and raises nothing; nothing is noted in a forked child; a reader tells a torn note.
"""

import fcntl
import mmap
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from rankscope._labels import text_of

if TYPE_CHECKING:
    from rankscope._recording import Recording
    from rankscope._span import Span
    from rankscope._step import Step

NAME = "rankscope-beacon"
MAGIC = 0x31_4E43_4245_5352
SIZE = 8192

HEAD = struct.Struct("<q16sq")
"""Magic, incarnation, native id of the sealing thread."""

BEAT, ENDED, STEP, STEP_AT, PHASE = 16, 17, 18, 19, 20
"""Words of 8 bytes, by number: when the sealing thread beat last (monotonic ns); 1 once the process says nothing more;
the step begun last, -1 before the first; when it began or ended; the phase that was open at the beat."""

GROUPS_AT = 256
GROUPS = 24
GROUP_BYTES = 320
GROUP_NAME = 64
"""Bytes of a group: its name, then what calls said of it, then what torch's recorder said."""

NOTE = struct.Struct("<qq32s56sq")
"""Number of the collective entered last, when (monotonic ns), operation, shapes of its input, the number again: a
note whose two numbers differ is being written. Behind it in a voice: the number of the last one that was over, when."""

VOICE_BYTES = 128
OVER, OVER_AT = NOTE.size // 8, NOTE.size // 8 + 1

OP_BYTES, SHAPE_BYTES = 32, 56
MOST_TEXTS = 4_096


class Beacon:
    """One process's notes on where it stands; one thread may enter a group at a time.

    Args:
        recording: Whose.

    Raises:
        OSError: there is no such memory here.
    """

    def __init__(self, recording: "Recording") -> None:
        self._recording = recording
        self._memory = _memory()
        self._words = memoryview(self._memory).cast("q")
        self._ops = _Texts(OP_BYTES)
        self._shapes = _Texts(SHAPE_BYTES)
        self._groups: dict[str, int] = {}
        self._before_beat: tuple[Callable[[], object], ...] = ()
        self._lock = threading.Lock()
        self.armed = True
        self._words[STEP] = -1
        _living.add(self)
        recording.add_step_listener(self)

    def group(self, name: str) -> int:
        """The number of a process group, to be asked for once; -1: there are too many, and it is not told."""
        if not self.armed:
            return -1
        with self._lock:
            number = self._groups.get(name)
            if number is None and len(self._groups) < GROUPS:
                number = self._groups[name] = len(self._groups)
                struct.pack_into(f"<{GROUP_NAME}s", self._memory, _group_at(number), _bytes(name, GROUP_NAME))
        return -1 if number is None else number

    def entered(self, group: int, cseq: int, op: str, at_ns: int, shape: Iterable[int] | str, /) -> int:
        """Note that a collective is entered.

        Args:
            group: What `group` said.
            cseq: Its number in the group, from 1; 0: it has none, and is not told.
            op: The operation.
            at_ns: Monotonic time.
            shape: Of its input, or a text of it.

        Returns:
            What `left` asks for.
        """
        if not self.armed or group < 0 or cseq <= 0:
            return 0
        try:
            NOTE.pack_into(
                self._memory, _group_at(group) + GROUP_NAME, cseq, at_ns, self._ops[op], self._shapes[shape], cseq
            )
        except Exception as error:  # noqa: BLE001  # whatever the arguments are, the collective goes on
            self._fault(error)
            return 0
        return cseq * GROUPS + group

    def left(self, ticket: int, at_ns: int, /) -> None:
        """Note that a collective is over.

        Args:
            ticket: What `entered` returned.
            at_ns: Monotonic time.
        """
        if ticket and self.armed:
            try:
                cseq, group = divmod(ticket, GROUPS)
                self._over((_group_at(group) + GROUP_NAME) // 8, cseq, at_ns)
            except Exception as error:  # noqa: BLE001  # likewise
                self._fault(error)

    def told(self, group: int, enqueued: int, completed: int, /, *, op: str = "", shape: str = "") -> None:
        """Note what torch's recorder says of a group: also of collectives that no call of ours saw.

        Args:
            group: What `group` said.
            enqueued: Number of the last collective that was entered.
            completed: Number of the last one that was over.
            op: Operation of the one entered last; empty: not known.
            shape: Shapes of its input; likewise.
        """
        if not self.armed or group < 0:
            return
        try:
            place, now_ns = _group_at(group) + GROUP_NAME + VOICE_BYTES, time.monotonic_ns()
            if enqueued > self._words[place // 8] or op:
                at_ns = now_ns if enqueued > self._words[place // 8] else self._words[place // 8 + 1]
                NOTE.pack_into(
                    self._memory, place, enqueued, at_ns, self._ops[op], _bytes(shape, SHAPE_BYTES), enqueued
                )
            self._over(place // 8, completed, now_ns)
        except Exception as error:  # noqa: BLE001  # likewise
            self._fault(error)

    def before_beat(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the sealing thread before each beat, which comes once a second."""
        self._before_beat = (*self._before_beat, callback)

    def begin(self) -> None:
        """Say who this is; in the sealing thread."""
        HEAD.pack_into(self._memory, 0, MAGIC, self._recording.identity.incarnation, threading.get_native_id())
        self.beat()

    def beat(self) -> None:
        """Say that this process runs Python code; in the sealing thread, once a second."""
        if not self.armed:
            return
        for callback in self._before_beat:
            try:
                callback()
            except Exception as error:  # noqa: BLE001  # the beat must not stop: it would read as a process that is stuck
                self._fault(error)
        with suppress(ValueError):  # ended meanwhile
            self._words[PHASE] = _open_phase(self._recording)
            self._words[BEAT] = time.monotonic_ns()

    def end(self) -> None:
        """Say that nothing more is said, and let go of the memory."""
        if not self.armed:
            return
        self._words[ENDED] = 1
        self.armed = False
        self._recording.remove_step_listener(self)
        with suppress(BufferError):  # a call in another thread is in the middle of a note
            self._words.release()
            self._memory.close()

    def step_started(self, step: "Step", /) -> None:
        """Note the step that began."""
        if self.armed:
            self._words[PHASE] = 0  # that of the step before is not this one's
            self._words[STEP] = step.index
            self._words[STEP_AT] = step.start_mono_ns

    def step_ended(self, step: "Step", /) -> None:
        """Note that it went on."""
        if self.armed:
            self._words[STEP_AT] = step.end_mono_ns

    def run_finishing(self) -> None:
        """Nothing is held."""

    def forget(self) -> None:
        """In a forked child: the notes are the parent's."""
        self.armed = False

    def _over(self, word: int, cseq: int, at_ns: int, /) -> None:
        words = self._words
        if cseq > words[word + OVER]:
            words[word + OVER] = cseq
            words[word + OVER_AT] = at_ns

    def _fault(self, error: Exception) -> None:
        if self.armed:
            self._recording.note_fault(f"{type(error).__qualname__} in the beacon: {text_of(error)}")


class _Texts(dict[object, bytes]):
    """Operations and shapes as they are written: the same ones come again and again."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes

    def __missing__(self, key: object) -> bytes:
        text = key if isinstance(key, str) else "x".join(map(str, key))  # pyright: ignore[reportArgumentType]  # a shape: whole numbers
        if len(self) >= MOST_TEXTS:
            self.clear()
        found = self[key] = _bytes(text, self._most_bytes)
        return found


def lit(recording: "Recording") -> Beacon | None:
    """The beacon of a recording; None where the system has no such memory, or this Python was built without.

    It is told less of, then.
    """
    try:
        return Beacon(recording)
    except (OSError, ValueError, AttributeError):
        return None


def _memory() -> mmap.mmap:
    descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, SIZE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return mmap.mmap(descriptor, SIZE)  # with a descriptor of its own, through which the agent comes
    finally:
        os.close(descriptor)


def _group_at(group: int) -> int:
    return GROUPS_AT + group * GROUP_BYTES


def _bytes(text: str, most: int) -> bytes:
    return text.encode("utf-8", "replace")[:most]


def _open_phase(recording: "Recording") -> int:
    """The phase of the innermost span that has one, as a code; 0: none is open."""
    spans: list[Span] = [span for span in tuple(recording.open_spans.copy().values()) if span.phase_code]
    return max(spans, key=lambda span: span.start_mono_ns).phase_code if spans else 0


_living: "weakref.WeakSet[Beacon]" = weakref.WeakSet()


def _forget_in_child() -> None:
    for beacon in tuple(_living):
        beacon.forget()


os.register_at_fork(after_in_child=_forget_in_child)
