"""The one run of this process, and the module-level functions that act on it."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Unpack

from rankscope.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from rankscope._run import Run
    from rankscope.probe.local import LocalProbe
    from rankscope.probe.options import WatchOptions


class Last(NamedTuple):
    """The run that was made current last: its id, and the folder of its spool, or "" where it has none."""

    run_id: str
    place: str


class _Slot:
    """Where the run of this process is kept, and how many there were."""

    run: "Run | None" = None
    last: Last | None = None
    given: Mapping[str, object] = MappingProxyType({})
    pid = 0
    count = 0


def get() -> "Run | None":
    """The current run; None before `init`, after `finish`, and in a forked child until its own `init`."""
    return _Slot.run if _Slot.pid == os.getpid() else None


def inherited() -> Mapping[str, object]:
    """What the process that forked this one was given for settings; empty: it was not forked from one in a run."""
    return {} if _Slot.run is None or _Slot.pid == os.getpid() else _Slot.given


def replace(run: "Run", given: Mapping[str, object] = MappingProxyType({})) -> None:
    """Make a run the current one, with the settings that were given for it.

    In a forked child that joined its parent's run, the parent's object records into the child's part from now on:
    a dataset that was made before the fork holds that one.
    """
    before = _Slot.run
    if before is not None and _Slot.pid != os.getpid() and (before.id, before.launch_id) == (run.id, run.launch_id):
        before.record_as(run)
    _Slot.run = run
    _Slot.last = Last(run.id, run.place)
    _Slot.given = given
    _Slot.pid = os.getpid()
    _Slot.count += 1


def last() -> Last | None:
    """The current run, or the one that was before it ended; None: there was none in this process."""
    return _Slot.last if _Slot.pid == os.getpid() else None


def count() -> int:
    """How many runs were current in this process so far."""
    return _Slot.count


def forget(run: "Run") -> None:
    """Make no run current, if it is this one."""
    if _Slot.run is run:
        _Slot.run = None


def current_run() -> "Run":
    """The run that `init` made; in a forked child, until its own `init`, the parent's, which records nothing there.

    Raises:
        ConfigError: there is none.
    """
    if _Slot.run is None:
        raise ConfigError("there is no run in this process: call rankscope.init() first")
    return _Slot.run


def finish() -> None:
    """Finish the current run; does nothing when there is none."""
    if _Slot.run is not None:
        _Slot.run.finish()


def watch(model: "nn.Module", **options: "Unpack[WatchOptions]") -> "LocalProbe":
    """Observe a model's tensors and the phases of its steps, in the current run.

    Raises:
        ConfigError: there is no run, or an option asks for something that cannot be.
    """
    return current_run().watch(model, **options)
