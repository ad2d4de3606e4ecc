"""The end of a process ends its run: at the interpreter's exit, after an exception, at SIGTERM.

Promises: the exit status is what it would have been, SIGTERM's included; at most 2 s are added; a handler that
somebody else installed is left alone; a forked child ends as if none of this were there.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, ClassVar

from rankscope._outcome import Outcome, status_after
from rankscope._run import Run
from rankscope._voice import say
from rankscope.errors import ExportError
from rankscope_proto.names import RunStatus

if TYPE_CHECKING:
    from multiprocessing.util import Finalize

TERMINATE_S = 0.5
"""What SIGTERM leaves for the last batch: a launcher may send SIGKILL soon."""

ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


class ProcessEnd:
    """Finishes a run when its process ends; undone when the run is finished.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._status = RunStatus.FINISHED
        self._hook_before: ExceptHook = sys.excepthook
        self._hook: ExceptHook = self._note_error
        self._handler = self._terminate
        self._has_handler = self._is_terminated = self._is_over = False
        self._finalizer: Finalize | None = None

    def install(self) -> None:
        """Watch for the end of the process."""
        self._hook_before, sys.excepthook = sys.excepthook, self._hook
        atexit.register(self._at_exit)
        self._finalizer = _at_end_of_child(self._at_child_exit)
        is_main = threading.current_thread() is threading.main_thread()
        # Somebody's own handler means that SIGTERM does not end the process here, or that they end it in order.
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handler)
            self._has_handler = True
            _Handled.by = self._handler
        self._run.on_finish(self._finished)

    def _at_exit(self) -> None:
        self._finish(self._status)

    def _finish(self, status: RunStatus, *, timeout: float | None = None) -> None:
        """End the run; nobody is there any more to catch what it may raise."""
        try:
            self._run.finish(status, timeout=timeout)
        except ExportError as error:
            say(str(error))

    def _at_child_exit(self) -> None:
        # Called while the exception that ends the child is on its way, which its excepthook never sees.
        error = sys.exc_info()[1]
        self._finish(self._status if error is None else status_after(type(error), error))

    def _note_error(
        self, error_class: type[BaseException], error: BaseException, traceback: TracebackType | None, /
    ) -> object:
        self._status = status_after(error_class, error)
        return self._hook_before(error_class, error, traceback)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._is_terminated = True
        self._run.hurry()
        # Does nothing where a `finish` is going on: the process then ends behind that one.
        self._finish(RunStatus.INTERRUPTED, timeout=TERMINATE_S)
        if self._is_over:
            _end_by_sigterm()

    def _finished(self, outcome: Outcome) -> None:
        del outcome
        self._is_over = True
        atexit.unregister(self._at_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
        if sys.excepthook is self._hook:
            sys.excepthook = self._hook_before
        if self._is_terminated:
            _end_by_sigterm()
        self._restore_handler()

    def _restore_handler(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if self._has_handler and is_main and signal.getsignal(signal.SIGTERM) == self._handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _Handled.by = None


def _at_end_of_child(callback: Callable[[], object]) -> "Finalize | None":
    """Call back at the end of a child of multiprocessing: a forked one ends with os._exit, past all other handlers.

    None where this is none.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return None
    from multiprocessing.util import Finalize  # not at the top: it takes 17 ms, and is loaded in such a child

    return Finalize(None, callback, exitpriority=100)


def _end_by_sigterm() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


class _Handled:
    """Our handler of SIGTERM in this process, and what the threads that fork now had blocked before."""

    by: Callable[[int, FrameType | None], None] | None = None
    masks: ClassVar[dict[int, set[signal.Signals | int]]] = {}


def _hold_sigterm() -> None:
    """Before a fork: a signal to the child must find the child's own handler.

    Python forgets signals that arrive between the fork and its own clean-up, where a handler of Python's is
    installed: a worker that was ended at once lived on.
    """
    if _Handled.by is not None:
        _Handled.masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release_sigterm() -> None:
    mask = _Handled.masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget_in_child() -> None:
    handler, _Handled.by = _Handled.by, None
    if handler is not None and signal.getsignal(signal.SIGTERM) == handler:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release_sigterm()


os.register_at_fork(before=_hold_sigterm, after_in_parent=_release_sigterm, after_in_child=_forget_in_child)
