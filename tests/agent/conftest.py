"""What tests of the SDK in this process have in common."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def patient_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this process end when all is sealed: on a busy machine that may take longer than training would wait."""
    monkeypatch.setattr("rankscope._outcome.FINISH_S", 60.0)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs of this process say nothing, keep to an empty folder, and start no agent."""
    for name in list(os.environ):
        if name.startswith(("RANKSCOPE_", "TORCHELASTIC_", "SLURM_")) or name in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path))
    monkeypatch.setenv("RANKSCOPE_QUIET", "1")
    monkeypatch.setenv("RANKSCOPE_AGENT", "none")
