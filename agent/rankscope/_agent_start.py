"""Starting the node's agent from a trainer: one process for all ranks, whoever is first.

Promises: at most one rank of a node starts one at a time; the agent has no part of this process but its settings;
starting it costs the trainer no child and some 20 ms.
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
from rankscope._attach import CONNECT_S, LOOK_S, connect
from rankscope._settings import SETTINGS, Settings
from rankscope.errors import Unavailable

LOG = "agent.log"
LOCK = "agent.start"
LAUNCH_S = 10.0
_PASSED_ON = ("home", "tls_ca", "tls_cert", "tls_key")


def start_agent(settings: Settings, endpoints: tuple[str, ...]) -> None:
    """Start an agent for the node's spools, unless another rank is doing that now.

    Args:
        settings: This process's.
        endpoints: Where it sends to what nobody gave an address of its own.

    Raises:
        Unavailable: it could not be started; says why.
        OSError: the folder of the spools cannot be written.
    """
    root = settings.spool_root
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            # A lock of the process, not of the descriptor: a child forked meanwhile has no part in it.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another rank is starting one
        _launch(root, _environment(os.environ, settings, endpoints=endpoints))
        _await_agent(root)
    finally:
        os.close(descriptor)


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
    """Hold the others back until it listens, or something went wrong."""
    deadline = time.monotonic() + CONNECT_S
    while time.monotonic() < deadline:
        found = connect(root)
        if found is not None:
            found.close()
            return
        time.sleep(LOOK_S)


def _environment(environ: Mapping[str, str], settings: Settings, *, endpoints: tuple[str, ...]) -> dict[str, str]:
    """This process's environment, with the settings that were given to `init`, and where the packages lie."""
    passed = {SETTINGS[name].variable: getattr(settings, name) for name in _PASSED_ON}
    given = {variable: str(value) for variable, value in passed.items() if value is not None}
    if endpoints:
        given[SETTINGS["endpoint"].variable] = ",".join(endpoints)
    if settings.insecure:
        given[SETTINGS["insecure"].variable] = "1"
    packages = {str(Path(module).parent.parent.absolute()) for module in (__file__, rankscope_proto.__file__)}
    paths = [str(Path(part).absolute()) for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    # Installed packages are found anyway; their folder in front of the standard library's would be wrong.
    known = {*paths, *(part for part in sys.path if part.endswith(("site-packages", "dist-packages")))}
    given["PYTHONPATH"] = os.pathsep.join([*paths, *sorted(packages - known)])
    return {**environ, **given}
