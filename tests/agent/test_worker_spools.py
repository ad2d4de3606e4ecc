"""A rank sends what its workers spooled, whatever became of one of the spools."""

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope._connection import Access, Connection
from rankscope._worker_spools import WorkerSpools
from rankscope.agent.adopt import Adopted
from rankscope.spool import spools
from rankscope_proto.names import ProcessRole
from tests.agent.gateways import ScriptedGateway
from tests.agent.spool.sources import WHO, Source, spooled
from tests.ground.processes import wait_until


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.fixture
def sending(gateway: ScriptedGateway, tmp_path: Path) -> Iterator[WorkerSpools]:
    connection = Connection((gateway.endpoint,), Access())
    yield WorkerSpools(tmp_path, WHO, connect=lambda: connection)
    connection.close()


def worker(root: Path, count: int = 2) -> Path:
    """The spool of a worker of the rank that is gone."""
    who = replace(WHO, process_role=ProcessRole.WORKER, incarnation=b"\1" + os.urandom(15))
    return spooled(root, Source(who=who), count)


def test_a_spool_that_cannot_be_read_keeps_no_other_from_being_sent(sending: WorkerSpools, tmp_path: Path) -> None:
    broken = tmp_path / ("0" * 32)
    broken.mkdir()
    (broken / "spool.json").write_text("{")

    worker(tmp_path)

    wait_until(lambda: spools(tmp_path) == [broken], what="the other is sent")
    sending.close(0.0)


def test_a_spool_whose_head_is_damaged_is_sent_by_what_its_batches_say(
    sending: WorkerSpools, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    folder = worker(tmp_path)
    (folder / "spool.json").write_text("{")

    wait_until(lambda: not folder.exists(), what="it is sent")

    assert len(gateway.accepted) == 2
    sending.close(0.0)


def test_a_spool_that_cannot_be_ended_keeps_no_other_from_its_end_and_raises_nothing(
    sending: WorkerSpools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = Adopted.finish

    def failing(self: Adopted) -> bool:
        if self.folder == stuck:
            raise OSError("no space")
        return finish(self)

    stuck = worker(tmp_path)
    monkeypatch.setattr(Adopted, "finish", failing)
    other = worker(tmp_path)

    wait_until(lambda: not other.exists(), what="the other is ended")
    sending.close(0.0)

    assert spools(tmp_path) == [stuck]


def test_a_spool_that_is_gone_is_sent_no_longer(
    sending: WorkerSpools, gateway: ScriptedGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Path] = []
    close = Adopted.close

    def noted(self: Adopted, timeout_s: float = 2.0) -> None:
        closed.append(self.folder)
        close(self, timeout_s)

    monkeypatch.setattr(Adopted, "close", noted)
    gateway.lags.set()
    folder = worker(tmp_path)
    wait_until(lambda: len(gateway.accepted) == 2, what="it is taken")

    folder.rename(tmp_path / "elsewhere")

    wait_until(lambda: closed == [folder], what="it is closed")
    sending.close(0.0)


def test_a_folder_of_which_the_disk_says_nothing_is_looked_at_again_and_raises_nothing(
    sending: WorkerSpools, gateway: ScriptedGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.lags.set()
    silent = worker(tmp_path)
    wait_until(lambda: len(gateway.accepted) == 2, what="it is taken")
    is_there, asked = Path.exists, threading.Semaphore(0)

    def failing(self: Path) -> bool:
        if self == silent:
            asked.release()
            raise OSError(errno.EIO, "Input/output error")
        return is_there(self)

    monkeypatch.setattr(Path, "exists", failing)
    assert all(asked.acquire(timeout=30) for _ in range(2)), "it is not looked at again"
    sending.close(0.0)
    monkeypatch.undo()

    assert spools(tmp_path) == [silent]
