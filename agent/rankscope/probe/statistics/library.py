"""The file that the kernel was compiled into: where it lies, whether it is to be trusted, and how it comes about.

Files lie in a folder of the data folder that is this user's alone. A home may be shared by unlike machines and by
unlike versions, so a file is named for everything that it depends on: source, compiler, flags, and the instructions
that the processor knows. Its owner and mode are checked before it is loaded, and that it is whole: it is code. Files
that nothing has asked for in `FORGOTTEN_S` go when a new one is built.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rankscope._home import data_folder
from rankscope.errors import ConfigError
from rankscope.probe.statistics.build import TRIAL, is_whole

SOURCES = Path(__file__).with_name("kernel")
BUILDER = Path(__file__).with_name("build.py")

PATIENCE_S = 180.0
"""Seconds that compiling may take: 1.5 alone; far more at the lowest priority beside a training."""


FORGOTTEN_S = 30 * 24 * 3600.0
"""Seconds after which a file that no training has used is removed: a new version or compiler makes a new one."""


class NoKernelError(Exception):
    """There is no kernel, and why."""


def library(environ: Mapping[str, str] = os.environ, *, patience_s: float = PATIENCE_S) -> Path:
    """The file of the kernel for this machine; compiled if it is not there. Takes seconds: never in training's thread.

    Args:
        environ: Says where the data folder is, and where compilers are.
        patience_s: Seconds that compiling may take.

    Raises:
        NoKernelError: There is no compiler, it failed, or the folder is not to be trusted.
    """
    compiler = shutil.which("cc", path=environ.get("PATH")) or shutil.which("gcc", path=environ.get("PATH"))
    if compiler is None:
        raise NoKernelError("no C compiler on PATH: install gcc, and statistics cost 20 times less")
    try:
        folder = data_folder(environ) / "kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, ConfigError) as error:
        raise NoKernelError(f"no folder to compile into: {error}") from error
    _check_owned(folder, forbidden=0o077)
    path = folder / f"{_identity(compiler)}.so"
    if not path.exists():
        _build(path, compiler, patience_s=patience_s)
    _check_owned(path, forbidden=0o022)
    if not is_whole(path):
        _build(path, compiler, patience_s=patience_s)
        _check_owned(path, forbidden=0o022)
    with suppress(OSError):  # where nothing can be written, nothing is forgotten either
        os.utime(path)
    return path


def _check_owned(path: Path, *, forbidden: int) -> None:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & forbidden:
        raise NoKernelError(f"{path} is not yours alone: remove it, or take access to it from all others")


def _identity(compiler: str) -> str:
    """A name for all that the file depends on; the compiler by its size and date, since asking it takes a process."""
    known = Path(compiler).resolve()
    about = known.stat()
    parts = [str(known), str(about.st_size), str(about.st_mtime_ns), " ".join(os.uname()[-1:]), _instructions()]
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=16)
    for source in [BUILDER, TRIAL, *sorted(SOURCES.iterdir())]:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _instructions() -> str:
    """The instructions that the processor knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")


def _build(path: Path, compiler: str, *, patience_s: float) -> None:
    if not sys.executable:
        raise NoKernelError("no Python interpreter to compile beside the training with")
    command = [sys.executable, "-I", "-S", str(BUILDER), str(path), compiler]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as builder:
        try:
            _, said = builder.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired as error:
            builder.terminate()  # not killed: it ends its compiler and removes what that has made so far
            raise NoKernelError(f"{compiler} took longer than {patience_s:.0f} s") from error
    if builder.returncode or not is_whole(path):
        reason = said.strip().splitlines()[-1:] or [f"exit status {builder.returncode}"]
        raise NoKernelError(f"{compiler} made no kernel that passes its test: {reason[0]}")
    _forget(path.parent)


def _forget(folder: Path) -> None:
    oldest = time.time() - FORGOTTEN_S
    for path in folder.iterdir():
        with suppress(OSError):  # another process may have removed it
            if path.suffix in {".so", ".lock"} and path.stat().st_mtime < oldest:
                path.unlink()
