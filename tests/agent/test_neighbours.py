"""Trainings beside an agent that somebody else started: each is sent as it was told, none keeps another from it."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope._identity import Identity
from rankscope._settings import Settings
from rankscope._spooling import discard, make_spool
from rankscope._thread_delivery import ThreadDelivery
from rankscope.agent.ways import Recorded, ways_of
from rankscope.spool import SpoolHead, SpoolReader, Trust, spools
from rankscope.testing import rows_of
from rankscope_proto.names import EventKind, GapClass
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.agent.agents import AgentProcess
from tests.agent.agent.spools import Trainer
from tests.agent.gateways import ScriptedGateway
from tests.agent.programs import run_program
from tests.agent.spooled import rows_in
from tests.agent.test_init import NOWHERE, STEP
from tests.ground.certificates import Authority
from tests.ground.processes import Children, wait_until

WHO = Identity("p", "r", b"l" * 16, bytes(range(16)), rank=0, world_size=1, node="n", pid=os.getpid(), boot_id="b")
DURABLE = STEP + 'run.finish(wait="durable", timeout=60)\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


def test_a_thread_sends_beside_an_agent_of_the_same_root(
    children: Children, root: Path, tmp_path: Path, gateway: ScriptedGateway
) -> None:
    agent = AgentProcess(children, root, endpoint=gateway.endpoint).await_ready()

    # `init` waits longer for a gateway that is not there than the agent between two looks at the root.
    ended = run_program(STEP, tmp_path, RANKSCOPE_AGENT="thread", RANKSCOPE_ENDPOINT=NOWHERE)

    assert ended.code == 0, ended.err
    assert "tried again" in ended.said[0]
    assert rows_in(root, "events")[-1]["kind"] == EventKind.END_OF_STREAM
    agent.child.await_that(lambda: len(agent.status()["spools"]) == 1, what="take over what the thread left")


def test_a_spool_that_somebody_sends_already_is_left_to_them(root: Path, tmp_path: Path) -> None:
    settings = Settings(tmp_path, endpoint=(NOWHERE,), agent="thread")
    writer = make_spool(settings, WHO)
    holder = SpoolReader(writer.folder)
    holder.hold()
    delivery = ThreadDelivery(settings, WHO, endpoints=settings.endpoint)

    assert delivery.begin(writer.folder) == ""

    delivery.close()
    holder.close()
    discard(writer)


def test_a_spool_that_cannot_be_sent_from_here_is_said_and_no_error(root: Path, tmp_path: Path) -> None:
    settings = Settings(tmp_path, endpoint=(NOWHERE,), agent="thread")
    writer = make_spool(settings, WHO)
    (writer.folder / "spool.json").write_text("{")
    delivery = ThreadDelivery(settings, WHO, endpoints=settings.endpoint)

    assert "nothing is sent from here" in delivery.begin(writer.folder)

    delivery.close()
    discard(writer)


def test_an_agent_that_somebody_else_started_trusts_whom_each_training_trusts(
    children: Children, root: Path, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server = ScriptedGateway(tls=authority.signed("server"))
    AgentProcess(children, root, endpoint=NOWHERE).await_ready()
    ca = os.path.relpath(authority.ca)  # a path of the training's folder, which is not the agent's

    ended = run_program(DURABLE, tmp_path, RANKSCOPE_ENDPOINT=f"https://{server.endpoint}", RANKSCOPE_TLS_CA=ca)

    server.stop()
    assert ended.code == 0, ended.err
    assert server.accepted


def test_what_a_training_was_told_lies_beside_its_batches_as_paths_only(root: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("tls_ca", "tls_cert", "tls_key")}
    for path in files.values():
        path.write_text("secret")
    settings = Settings(tmp_path, **files, insecure=True)  # pyright: ignore[reportArgumentType]  # three paths
    writer = make_spool(settings, WHO, sends_itself=True)

    head = SpoolHead.read(writer.folder)

    assert head.trust == Trust(*map(str, files.values()), insecure=True)
    assert head.sends_itself
    assert "secret" not in (writer.folder / "spool.json").read_text()
    discard(writer)


def test_a_spool_of_before_leaves_it_to_whoever_sends(root: Path, tmp_path: Path) -> None:
    writer = make_spool(Settings(tmp_path, endpoint=("g:1",)), WHO)
    path = writer.folder / "spool.json"
    values = json.loads(path.read_text())
    del values["trust"], values["sends_itself"]
    path.write_text(json.dumps(values))

    head = SpoolHead.read(writer.folder)

    assert (head.trust, head.sends_itself, head.endpoints) == (Trust(), False, ("g:1",))
    discard(writer)


def test_gateways_are_reached_by_one_connection_for_each_way_to_trust_them(tmp_path: Path) -> None:
    told, own = Recorded(("g:1",), Trust(tls_ca="/a.pem")), Recorded(("g:1",))
    agent = ways_of(Settings(tmp_path, endpoint=("g:1",)))

    assert agent.connection(told) is agent.connection(Recorded(("g:1",), Trust(tls_ca="/a.pem")))
    assert agent.connection(told) is not agent.connection(own)
    assert agent.connection(told) is not agent.connection(Recorded(("g:1",), Trust(tls_ca="/b.pem")))


def test_who_drains_with_certificates_of_their_own_uses_those(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tls_ca=tmp_path / "here.pem")
    told, own = Recorded(("g:1",), Trust(tls_ca="/there.pem")), Recorded(("g:1",))

    by_hand = ways_of(settings, has_key_for_all=True)
    without = ways_of(replace(settings, tls_ca=None), has_key_for_all=True)

    assert by_hand.connection(told) is by_hand.connection(own)
    assert without.connection(told) is not without.connection(own)


def test_an_agent_that_is_stopped_is_named_and_nobody_asks_about_the_endpoint(
    children: Children, root: Path, tmp_path: Path, gateway: ScriptedGateway
) -> None:
    agent = AgentProcess(children, root, endpoint=gateway.endpoint).await_ready()
    agent.child.signal(signal.SIGSTOP)

    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=gateway.endpoint)

    assert ended.code == 0, ended.err
    assert f"(process {agent.child.pid}) is stopped" in ended.said[0]
    assert "RANKSCOPE_ENDPOINT" not in ended.said[0]
    assert rows_in(root, "events")[-1]["kind"] == EventKind.END_OF_STREAM


def arrived(gateway: ScriptedGateway, trainer: Trainer) -> tuple[list[int], list[tuple[object, ...]]]:
    """The seqs that came of a trainer, and what others state as lost."""
    batches = [Batch.FromString(sealed.payload) for sealed in gateway.accepted]
    own = [batch for batch in batches if batch.header.incarnation == trainer.identity.incarnation]
    gaps = [row for batch in batches if batch not in own for row in rows_of(batch, "gaps")]
    lost = [(row["seq_from"], row["seq_to"], row["count"]) for row in gaps if row["class"] == GapClass.LOST.code]
    return [batch.header.seq for batch in own], lost


@pytest.mark.parametrize("what", ["spool", "root"])
def test_a_spool_removed_under_a_living_training_costs_nothing_that_its_sender_has_open(
    children: Children, root: Path, gateway: ScriptedGateway, what: str
) -> None:
    agent = AgentProcess(children, root, endpoint=gateway.endpoint).await_ready()
    trainer = Trainer(root)
    trainer.append(3)
    wait_until(lambda: trainer.writer.durable == 3, what="be durable")
    agent.child.signal(signal.SIGSTOP)
    trainer.append(3)
    shutil.rmtree(trainer.folder if what == "spool" else root)
    trainer.append(2, is_last=True)

    agent.child.signal(signal.SIGCONT)

    wait_until(lambda: trainer.writer.durable == 8, what="be durable")
    trainer.end()
    wait_until(lambda: not spools(root), what="be removed")
    assert arrived(gateway, trainer) == (list(range(8)), [])


@pytest.mark.parametrize("what", ["spool", "root"])
def test_a_spool_removed_before_anybody_read_it_is_stated_as_lost_row_by_row(
    children: Children, root: Path, gateway: ScriptedGateway, what: str
) -> None:
    trainer = Trainer(root)
    trainer.append(3)
    shutil.rmtree(trainer.folder if what == "spool" else root)
    trainer.append(2, is_last=True)

    AgentProcess(children, root, endpoint=gateway.endpoint).await_ready()

    wait_until(lambda: trainer.writer.durable == 5, what="be durable")
    trainer.end()
    wait_until(lambda: not spools(root), what="be removed")
    assert arrived(gateway, trainer) == ([3, 4], [(0, 2, 9)])
