"""What a replay waits for: the end of the spool as it was when it began, whatever becomes durable meanwhile."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rankscope import _replay
from rankscope._settings import Settings
from rankscope.spool import SpoolReader
from tests.agent.agent.spools import Trainer
from tests.agent.gateways import ScriptedGateway


def test_what_becomes_durable_while_it_begins_is_not_waited_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = ScriptedGateway()
    trainer = Trainer(tmp_path, endpoint=gateway.endpoint)
    trainer.append(3)
    looked = _replay._missing  # pyright: ignore[reportPrivateUsage]

    def moved_on(root: Path, own: Path) -> dict[Path, int]:
        found = looked(root, own)
        reader = SpoolReader(own)
        reader.note_standing(max(2, reader.accepted), max(2, reader.durable))
        reader.close()
        return found

    monkeypatch.setattr(_replay, "_missing", moved_on)
    settings = Settings(home=tmp_path, spool=tmp_path, endpoint=(gateway.endpoint,))
    exporter = cast("Any", SimpleNamespace(place=str(trainer.folder), take_obstacle=lambda: None))
    done = _replay.replay(settings, exporter, patience_s=2.0)

    trainer.end()
    gateway.stop()
    assert (done.left, done.faults) == (0, ())
