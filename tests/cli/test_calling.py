"""A command that is shown can be pasted: it names program and folder where the next shell would not find them."""

import os
import pwd
import shlex
import sys
from pathlib import Path

import pytest

from rankscope.up import DataFolder, call, is_usual
from tests.cli.programs import run


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with a `rankscope` in it, which this Python is said to be of."""
    program = tmp_path / "bin dir" / "rankscope"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    return program


def test_a_program_that_path_leads_to_is_called_by_its_name(
    installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(installed.parent))

    assert call(DataFolder(tmp_path), "trace", "a b") == f"rankscope trace 'a b' --home {tmp_path}"


def test_a_program_that_path_does_not_lead_to_is_called_by_its_path(
    installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")

    assert call(DataFolder(tmp_path), "runs").startswith(f"'{installed}' runs")


def test_without_a_program_python_is_called_and_the_command_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(_alone(tmp_path)))

    answer = run(shlex.split(call(DataFolder(tmp_path), "doctor")), home=tmp_path / "elsewhere")

    assert f"data       {tmp_path}" in answer.stdout


def test_the_usual_folder_is_not_named() -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)

    assert is_usual(DataFolder(home / ".local" / "share" / "rankscope"))
    assert not is_usual(DataFolder(home / "elsewhere"))


def _alone(folder: Path) -> Path:
    """This Python, where no program lies beside it."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python
