"""What becomes of values that were asked for: the kept tensors, or the reason why there are none."""

import ctypes
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from rankscope._kept_values import Content
from rankscope.errors import NotCaptured
from rankscope.probe.configuration import Values
from rankscope.probe.elements import Chosen
from rankscope.probe.meters import Event
from rankscope.probe.names import role_of
from rankscope.probe.rows import Subject
from rankscope_proto.names import Role


class Kept:
    """Kept values of one tensor.

    Args:
        subject: What the tensor is.
        step: Optimizer step.
        microstep: Gradient-accumulation index inside it.
        chosen: Which elements.
        host: Where they are, or will be once `event` has passed; nobody writes to it.
        event: Passed when they are there; None: they are.

    Attributes:
        dtype: Element type, as torch names it.
        shape: Shape of what was kept.
        content: The same memory, for whoever sends it.
    """

    def __init__(
        self, subject: Subject, *, step: int, microstep: int, chosen: Chosen, host: Tensor, event: Event | None
    ) -> None:
        self.subject = subject
        self.step = step
        self.microstep = microstep
        self.dtype = chosen.dtype
        self.shape = chosen.shape
        self._host = host
        self._event = event
        self.content = Content(_memory(host), owner=host)

    def __repr__(self) -> str:
        return f"<Kept {self.name} {self.role} of step {self.step}: {self.dtype}{list(self.shape)}>"

    @property
    def name(self) -> str:
        """Path of the tensor."""
        return self.subject.name

    @property
    def role(self) -> Role:
        """What the tensor is."""
        return role_of(self.subject.role)

    @property
    def bytes(self) -> int:
        """Bytes that were kept."""
        return len(self.content.data)

    def has_arrived(self, *, wait: bool = False) -> bool:
        """Whether the values have left their device; `wait` until they have (never in a step)."""
        if self._event is not None and wait:
            self._event.synchronize()
        if self._event is None or wait or self._event.query():
            self._event = None
        return self._event is None

    def values(self) -> Tensor:
        """The values, as a tensor of the caller's own on the host; waits for the device they come from."""
        self.has_arrived(wait=True)
        return self._host.clone()

    def digest(self) -> str:
        """BLAKE2b-128 of the kept bytes, 32 hexadecimal digits; waits likewise."""
        self.has_arrived(wait=True)
        return self.content.digest.hex()


def _memory(host: Tensor) -> memoryview:
    """The bytes of a contiguous host tensor, without a copy and without numpy."""
    size = host.numel() * host.itemsize
    return memoryview((ctypes.c_ubyte * size).from_address(host.data_ptr()) if size else b"")


class Pending:
    """A capture that was asked for; `result` waits for it.

    Attributes:
        refused: Tensors that were seen and not kept, each with the reason.
        reason: Why nothing was kept; "" while it is not over, and where something was.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.reason = ""
        self._kept: list[Kept] = []
        self._is_over = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether it is over: the tensors are there, or there is a reason why not."""
        return self._is_over.is_set()

    @property
    def kept(self) -> tuple[Kept, ...]:
        """What has been kept so far."""
        return tuple(self._kept)

    def result(self, timeout_s: float | None = None) -> tuple[Kept, ...]:
        """Wait for the kept tensors; not to be called by the thread that trains, before the step has ended.

        Args:
            timeout_s: Seconds to wait at most; None: until the watch comes off.

        Raises:
            NotCaptured: Nothing was kept, or the time is over; says why.
        """
        if not self._is_over.wait(timeout_s):
            raise NotCaptured(f"nothing was kept within {timeout_s} s: is a step running?")
        if not self._kept:
            raise NotCaptured(self.reason)
        return self.kept

    def add(self, kept: Kept) -> None:
        """Take a tensor; the keeper calls it."""
        self._kept.append(kept)

    def have_arrived(self) -> bool:
        """Whether what was kept has left its devices."""
        return all(kept.has_arrived() for kept in self._kept)

    def end(self, reason: str) -> None:
        """Nothing more is kept; the keeper calls it.

        Args:
            reason: Why there is nothing, if there is nothing and none was refused.
        """
        if not self._kept:
            self.reason = "; ".join(self.refused) or reason
        self._is_over.set()


@dataclass(eq=False, slots=True)
class Ask:
    """Values that somebody waits for.

    Attributes:
        nodes: Paths or globs.
        roles: Roles; empty: all.
        values: Which elements.
        cause: What asked.
        step: The step in which they are kept; None: the next that begins.
        pending: Told what came of it.
    """

    nodes: tuple[str, ...]
    roles: Collection[Role]
    values: Values
    cause: str
    step: int | None
    pending: Pending = field(default_factory=Pending)


if TYPE_CHECKING:
    from rankscope.probe.contract import CapturedTensor, CaptureHandle

    _conforms: tuple[type[CapturedTensor], type[CaptureHandle]] = Kept, Pending
