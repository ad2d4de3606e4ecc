"""Starting the node's agent: one process for all ranks, whoever is first.

Promises: at most one process of a node starts one at a time, and the others wait for it; the agent has no part of
who started it but its settings; starting it leaves no child and costs some 20 ms beside the wait.
"""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import rankscope_proto
from rankscope import _launch_agent
from rankscope._attach import connect
from rankscope._settings import SETTINGS, Settings
from rankscope.errors import Unavailable

LOG = "agent.log"
LOCK = "agent.start"
LAUNCH_S = 10.0
LISTEN_S = 5.0
"""How long an agent may take until it listens."""

LOOK_S = 0.02
_PASSED_ON = ("home", "tls_ca", "tls_cert", "tls_key")


def start_agent(root: Path, environ: Mapping[str, str]) -> None:
    """Start an agent for the spools in a folder, unless somebody else is doing that now, and wait until it listens.

    Args:
        root: The folder.
        environ: The agent's environment.

    Raises:
        Unavailable: it could not be started, or does not listen; says why, or where it does.
        OSError: the folder cannot be written.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if _is_first(descriptor):
            _launch(root, environ)
        _await_agent(root)
    finally:
        os.close(descriptor)


def _is_first(descriptor: int) -> bool:
    try:
        # A lock of the process, not of the descriptor: a child forked meanwhile has no part in it.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def agent_environment(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """A process's environment, with the settings that were given otherwise, and where the packages lie."""
    passed = {SETTINGS[name].variable: getattr(settings, name) for name in _PASSED_ON}
    given = {variable: str(value) for variable, value in passed.items() if value is not None}
    if settings.endpoint:
        given[SETTINGS["endpoint"].variable] = ",".join(settings.endpoint)
    if settings.insecure:
        given[SETTINGS["insecure"].variable] = "1"
    packages = {str(Path(module).parent.parent.absolute()) for module in (__file__, rankscope_proto.__file__)}
    paths = [str(Path(part).absolute()) for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    # Installed packages are found anyway; their folder in front of the standard library's would be wrong.
    known = {*paths, *(part for part in sys.path if part.endswith(("site-packages", "dist-packages")))}
    given["PYTHONPATH"] = os.pathsep.join([*paths, *sorted(packages - known)])
    return {**environ, **given}


def _launch(root: Path, environ: Mapping[str, str]) -> None:
    if not sys.executable:
        raise Unavailable("no agent can be started: this Python does not know its own program; run `rankscope agent`")
    program = [sys.executable, "-P", "-m", "rankscope", "agent", "--exit-when-idle", "--spool", str(root.absolute())]
    launcher = [sys.executable, "-I", "-S", str(Path(_launch_agent.__file__)), str(root.absolute() / LOG)]
    try:
        done = subprocess.run(
            [*launcher, *program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=dict(environ),
            timeout=LAUNCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"no agent could be started within {LAUNCH_S:g} s") from error
    if done.returncode:
        raise Unavailable(f"no agent could be started: {done.stderr.strip()[-500:]}")


def _await_agent(root: Path) -> None:
    deadline = time.monotonic() + LISTEN_S
    while (found := connect(root)) is None:
        if time.monotonic() >= deadline:
            raise Unavailable(f"the agent does not listen within {LISTEN_S:g} s: see {root / LOG}")
        time.sleep(LOOK_S)
    found.close()
