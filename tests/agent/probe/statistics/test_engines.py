"""The kernel comes about beside the training, is trusted only where it may be, and its absence costs time only."""

import ctypes
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from rankscope.probe.statistics import engine, engines, prepare, table
from rankscope.probe.statistics.build import is_whole
from rankscope.probe.statistics.library import NoKernelError, library
from rankscope.probe.statistics.native import Kernel
from rankscope.probe.statistics.numbers import sums_of
from tests.agent.probe.statistics.engines import compiled, computing
from tests.ground.processes import alive


def at(home: Path, **more: str) -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"], "RANKSCOPE_HOME": str(home), **more}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler that always fails."""
    folder = tmp_path / "bin"
    folder.mkdir()
    compiler = folder / "cc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_without_a_compiler_the_reason_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoKernelError, match="no C compiler on PATH"):
        library({"PATH": str(tmp_path), "RANKSCOPE_HOME": str(tmp_path)})


@pytest.mark.usefixtures("failing")
def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(NoKernelError, match="made no kernel"):
        library(at(tmp_path))

    assert [path.suffix for path in (tmp_path / "kernels").iterdir()] == [".lock"]


def test_a_compiler_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(NoKernelError, match="took longer"):
        library(at(tmp_path), patience_s=0.001)


def test_a_compiler_that_hangs_is_ended_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    compiler, pid = tmp_path / "bin" / "cc", tmp_path / "pid"
    compiler.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 60\n")
    compiler.chmod(0o755)

    with pytest.raises(NoKernelError, match="took longer"):
        library(at(tmp_path, PATH=f"{compiler.parent}:{os.environ['PATH']}"), patience_s=1.5)

    assert [path.suffix for path in (tmp_path / "kernels").iterdir()] == [".lock"]
    assert not pid.exists() or not alive(int(pid.read_text()))


def test_a_folder_that_cannot_be_made_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(NoKernelError, match="no folder to compile into"):
        library(at(tmp_path / "file"))


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir(mode=0o700)
    (tmp_path / "kernels").chmod(0o777)

    with pytest.raises(NoKernelError, match="not yours alone"):
        library(at(tmp_path))


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_321)

    with pytest.raises(NoKernelError, match="not yours alone"):
        library(at(tmp_path))


def test_a_file_that_others_may_write_to_is_not_loaded(
    kernel: Kernel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = compiled(tmp_path_factory.getbasetemp() / "rankscope")
    path.chmod(0o622)
    try:
        with pytest.raises(NoKernelError, match="not yours alone"):
            compiled(tmp_path_factory.getbasetemp() / "rankscope")
    finally:
        path.chmod(0o600)


def test_a_kernel_that_lies_where_nothing_can_be_written_is_found(
    kernel: Kernel, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refused)

    assert is_whole(compiled(tmp_path_factory.getbasetemp() / "rankscope"))


def test_two_processes_that_begin_at_once_both_have_a_kernel_where_a_damaged_and_an_old_one_lay(
    kernel: Kernel, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # given this machine's file, cut short, and one that no training has asked for in years
    whole = compiled(tmp_path_factory.getbasetemp() / "rankscope")
    damaged, old = tmp_path / "kernels" / whole.name, tmp_path / "kernels" / "old.so"
    damaged.parent.mkdir(mode=0o700)
    for path in (damaged, old):
        path.write_bytes(whole.read_bytes()[:-1])
        path.chmod(0o600)
    os.utime(old, (0, 0))
    found: list[Path] = []
    both = [threading.Thread(target=lambda: found.append(library(at(tmp_path)))) for _ in range(2)]

    for each in both:
        each.start()
    for each in both:
        each.join()

    assert found == [damaged, damaged]
    assert is_whole(damaged)
    assert sorted(path.suffix for path in damaged.parent.iterdir()) == [".lock", ".so"]


def test_a_library_that_is_none_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "not.so").write_text("no library")

    with pytest.raises(NoKernelError, match="cannot be loaded"):
        engines.use(tmp_path / "not.so")


def test_a_kernel_outlives_another_of_the_same_file(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> None:
    Kernel(compiled(tmp_path_factory.getbasetemp() / "rankscope"))
    others = [(ctypes.c_double * 256)(*[9.0] * 256) for _ in range(100)]

    found = sums_of(kernel.table(torch.tensor([1, -2], dtype=torch.int8), 1))

    assert (found.l1, len(others)) == (3.0, 100)


def test_a_kernel_is_prepared_while_training_goes_on(
    kernel: Kernel, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path_factory.getbasetemp() / "rankscope"))
    with computing(None):
        before = (engine().name, table(torch.arange(5.0)))
        thread = prepare()

        assert thread is not None
        thread.join()
        assert (before[0], engine().name) == ("torch", "kernel")
        assert table(torch.arange(5.0)) == before[1]
        assert prepare() is None


def test_a_program_of_a_few_small_steps_compiles_nothing() -> None:
    with computing(None):
        for _ in range(20):
            table(torch.ones(10))

        assert not engines.state.is_sought


@pytest.mark.usefixtures("failing")
def test_a_kernel_that_cannot_be_had_leaves_torch_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path))
    with computing(None):
        thread = prepare()
        assert thread is not None
        thread.join()

        assert engine().name == "torch"
        assert "made no kernel" in engine().detail
        assert table(torch.ones(3)).l1 == 3.0


def test_while_a_kernel_is_prepared_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(engines, "library", lambda: Path("/none") if asked.wait(60) else Path())
    with computing(None):
        thread = prepare()
        assert thread is not None
        assert engine() == ("torch", "the kernel is being prepared")
        asked.set()
        thread.join()

        assert "cannot be loaded" in engine().detail


FORKING = """
import os, sys, torch
from pathlib import Path
from rankscope.probe.statistics import engines, table
engines.use(Path(sys.argv[1]))
torch.set_num_threads(2)
values = torch.arange(300_000.0)
wanted = table(values)
if os.fork() == 0:
    os._exit(0 if table(values).fingerprint == wanted.fingerprint else 1)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_forked_child_measures_with_one_thread(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = compiled(tmp_path_factory.getbasetemp() / "rankscope")

    done = subprocess.run([sys.executable, "-c", FORKING, path], timeout=60, check=False)

    assert done.returncode == 0


def test_denormal_numbers_stay_what_they_are(kernel: Kernel) -> None:
    assert (torch.tensor([1e-40]) * 1).item() != 0.0


def test_threads_change_no_statistic(kernel: Kernel) -> None:
    values = torch.randn(300_001, generator=torch.Generator().manual_seed(1))

    one, two = sums_of(kernel.table(values, 1)), sums_of(kernel.table(values, 2))
    (_, many, _) = (sums_of(each) for each in kernel.tables([values[:5], values, values[1:]], 2))

    for other in (two, many):
        assert other[6:] == one[6:]  # extremes, counts, histogram, fingerprint
        assert other.std == pytest.approx(one.std, rel=1e-9)
