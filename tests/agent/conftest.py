"""What tests of the SDK in this process have in common."""

import pytest


@pytest.fixture(autouse=True)
def patient_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this process end when all is sealed: on a busy machine that may take longer than training would wait."""
    monkeypatch.setattr("rankscope._outcome.FINISH_S", 60.0)
