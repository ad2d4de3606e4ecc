"""Waiting until the store has what this node recorded of a run: `rankscope.wait`."""

import os
import time
from pathlib import Path

from rankscope import _current
from rankscope._settings import Settings
from rankscope._spooling import find_root
from rankscope.agent.left import left_in
from rankscope.errors import ConfigError, Unavailable

LOOK_S = 0.1


def wait(run_id: str | None = None, *, timeout: float = 60.0) -> None:
    """Wait until the store has all that this node recorded of a run, in whichever process.

    What the run of this process has not handed on yet is flushed first. Somebody has to send: the node's agent, a
    thread of the process, or `rankscope drain`.

    Args:
        run_id: The run; default: that of this process, also after its `finish`.
        timeout: Seconds to wait at most.

    Raises:
        ConfigError: no run is named, and this process has none.
        Unavailable: the store did not have all of it in time, or this process could not hand it on; nothing is lost.
    """
    deadline = time.monotonic() + timeout
    run, last = _current.get(), _current.last()
    named = run_id or (None if last is None else last.run_id)
    if named is None:
        raise ConfigError("there is no run to wait for: call rankscope.init() first, or name one")
    if run is not None and run.id == named and not run.flush(timeout):
        raise Unavailable(f"not all of run {named} is in the spool yet: wait longer, or see whether its disk is full")
    root = _root(last if last is not None and last.run_id == named else None)
    while left := left_in(root, run_id=named):
        if time.monotonic() >= deadline:
            batches = sum(one.batches for one in left)
            raise Unavailable(
                f"{batches} batches of run {named} are not in the store yet; they are safe in {root}: they are sent "
                "when the ingest tier answers, or by `rankscope drain`"
            )
        time.sleep(LOOK_S)


def _root(last: _current.Last | None) -> Path:
    if last is not None and last.place:
        return Path(last.place).parent
    return find_root(Settings.load(os.environ)).settings.spool_root
