"""The agents that trainings start: tests end them, since nobody else waits for them."""

import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import cast

from rankscope._host import process_start
from tests.ground.processes import alive, wait_until


def agent_pid(root: Path) -> int | None:
    """The agent that serves a folder of spools; None when none does."""
    said = _said(root)
    if said is None:
        return None
    pid = int(str(said["pid"]))
    return pid if process_start(pid) == int(str(said["process_start"])) else None


def end_agent(root: Path) -> None:
    """End the agent of a folder, if one serves it, whatever it is in the middle of; nothing of it is left."""
    said, pid = _said(root), agent_pid(root)
    if said is None or pid is None:
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), what="end")
    shutil.rmtree(Path(str(said["socket"])).parent, ignore_errors=True)


def _said(root: Path) -> dict[str, object] | None:
    try:
        return cast("dict[str, object]", json.loads((root / "agent.json").read_text()))
    except (OSError, ValueError):
        return None
