"""Which way statistics are computed now: by the compiled kernel, or in torch's operations until there is one.

The kernel is compiled on the machine that trains, once, by a process of the lowest priority that nobody waits for.
That begins when torch's operations have cost as much as makes it worth while, so a program that ends after a few
small steps compiles nothing. A file from an earlier training is used again.
"""

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from rankscope.probe.statistics.library import NoKernelError, library
from rankscope.probe.statistics.native import Kernel

WORTH_NS = 200_000_000
"""Time in torch's operations after which a kernel is looked for: it takes 1.5 s of a core to compile."""


class Engine(NamedTuple):
    """What computes statistics of tensors on the host.

    Attributes:
        name: "kernel" or "torch".
        detail: Of the kernel, its file; of torch's operations, why there is no kernel.
    """

    name: str
    detail: str


class State:
    """What a process knows of its kernel.

    Attributes:
        kernel: The kernel, once there is one.
        detail: Its file, or why there is none.
        spent_ns: What torch's operations have taken for want of one.
        is_sought: Whether one has been looked for.
        is_forked: Whether this is a forked child: one thread only.
        lock: Of `is_sought`.
    """

    def __init__(self) -> None:
        self.kernel: Kernel | None = None
        self.detail = "not worth compiling yet"
        self.spent_ns = 0
        self.is_sought = False
        self.is_forked = False
        self.lock = threading.Lock()


state = State()


def _forked() -> None:
    # The thread that prepared a kernel is gone here, and two OpenMP threads in a forked child wait for ever.
    state.is_forked = True
    state.lock = threading.Lock()
    if state.kernel is None:
        state.detail = "a forked process compiles none"


os.register_at_fork(after_in_child=_forked)


def engine() -> Engine:
    """What computes statistics of tensors on the host now."""
    return Engine("torch" if state.kernel is None else "kernel", state.detail)


def kernel() -> Kernel | None:
    """The kernel, once there is one."""
    return state.kernel


def threads() -> int:
    """Threads that a kernel may use: as many as torch's operations do."""
    return 1 if state.is_forked else torch.get_num_threads()


@contextmanager
def in_torch() -> Generator[None]:
    """Around what torch's operations compute for want of a kernel."""
    began = time.perf_counter_ns()
    yield
    state.spent_ns += time.perf_counter_ns() - began
    if state.spent_ns > WORTH_NS and not state.is_sought and not state.is_forked:
        prepare()


def prepare() -> threading.Thread | None:
    """Begin to look for a kernel, and to compile it if there is none; once in a process.

    Returns:
        The thread that does it; None if it was done before.
    """
    with state.lock:
        if state.is_sought:
            return None
        state.is_sought, state.detail = True, "the kernel is being prepared"
    thread = threading.Thread(target=_seek, name="rankscope-kernel", daemon=True)
    thread.start()
    return thread


def _seek() -> None:
    try:
        use(library())
    except NoKernelError as error:
        state.detail = str(error)
    except Exception as error:  # noqa: BLE001  whatever is wrong with a compiler is no fault of the training
        state.detail = f"the kernel could not be prepared: {error!r}"


def use(path: Path) -> None:
    """Compute with the kernel in a file from now on.

    Raises:
        NoKernelError: The file cannot be loaded.
    """
    try:
        state.kernel = Kernel(path)
    except (OSError, AttributeError) as error:
        raise NoKernelError(f"{path} cannot be loaded: {error}") from error
    state.detail = str(path)
