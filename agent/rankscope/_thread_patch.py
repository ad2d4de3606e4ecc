"""Threads that go on where their starter stands: an opt-in change of the standard library, undone with the run.

A new thread begins with no open span, so what it records begins trees of its own. With `propagate_threads`, a thread
begins under the span that was open where it was started, and a task of a thread pool under the one where it was
submitted: the pool's threads outlive both. Only our own context is handed on; everybody else's stays as it was.
"""

from collections.abc import Callable
from functools import partial, wraps
from threading import Thread
from typing import TYPE_CHECKING, cast

from rankscope._wrap import call_within

if TYPE_CHECKING:
    from rankscope._outcome import Outcome
    from rankscope._recording import Recording
    from rankscope._run import Run

Method = Callable[..., object]


def propagate_threads(run: "Run") -> None:
    """Hand the run's open span on to threads and to tasks of thread pools from now on, until it is finished."""
    from concurrent.futures import ThreadPoolExecutor  # not at the top: few ask for this, and loading takes time
    from multiprocessing.pool import ThreadPool

    recording: Recording = run._recording  # pyright: ignore[reportPrivateUsage]  # internal to this distribution
    patches = [
        _Patch(Thread, "start", changed=lambda start: _starting(recording, start)),
        *(
            _Patch(pool, name, changed=lambda submit: _submitting(recording, submit))
            for pool, names in (
                (ThreadPoolExecutor, ("submit",)),
                (ThreadPool, ("apply_async", "_map_async", "imap", "imap_unordered")),
            )
            for name in names
        ),
    ]

    def undo(outcome: "Outcome") -> None:
        del outcome
        for patch in patches:
            patch.undo()

    run.on_finish(undo)


class _Patch:
    """One method of a class, replaced.

    Args:
        owner: The class.
        name: The method.
        changed: Makes the new one from the old one.
    """

    def __init__(self, owner: type, name: str, *, changed: Callable[[Method], Method]) -> None:
        self._owner = owner
        self._name = name
        self._before: object = owner.__dict__.get(name)
        self._now = changed(getattr(owner, name))
        setattr(owner, name, self._now)

    def undo(self) -> None:
        """Put the old method back, unless somebody replaced ours: then ours stays, and does nothing more."""
        if self._owner.__dict__.get(self._name) is not self._now:
            return
        if self._before is None:  # it was inherited
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


def _starting(recording: "Recording", start: Method) -> Method:
    @wraps(start)
    def wrapper(thread: Thread) -> None:
        parent = recording.current.get()
        if recording.armed and parent is not None:
            # On the object, since a subclass has a `run` of its own; gone when it runs, or it would keep itself alive.
            run = thread.run

            def within() -> None:
                thread.__dict__.pop("run", None)
                recording.current.set(parent)
                run()

            thread.run = within
        try:
            start(thread)
        except BaseException:
            thread.__dict__.pop("run", None)
            raise

    return wrapper


def _submitting(recording: "Recording", submit: Method) -> Method:
    """The function is the first argument, or is called `func`."""

    @wraps(submit)
    def wrapper(pool: object, *args: object, **named: object) -> object:
        if not recording.armed:
            return submit(pool, *args, **named)
        # Also where no span is open: the pool's thread may have been started inside one.
        carried = partial(call_within, recording.current, recording.current.get())
        if args:
            args = (partial(carried, cast("Method", args[0])), *args[1:])
        elif "func" in named:
            named["func"] = partial(carried, cast("Method", named["func"]))
        return submit(pool, *args, **named)

    return wrapper
