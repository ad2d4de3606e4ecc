"""What cannot be delivered is stated, exactly and once; the rest is delivered."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope._connection import Connection
from rankscope.agent.account import rows_of
from rankscope.agent.adopt import Adopted
from rankscope.agent.courier import Courier, Loss
from rankscope.agent.window import Stand, Window
from rankscope.spool import Frame, SpoolHead, SpoolReader, _writer, spools
from rankscope.testing import rows_of as table_rows_of
from rankscope_ingest.validate import check
from rankscope_proto.identity import payload_digest
from rankscope_proto.names import GapCause
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed
from tests.agent.agent.spools import Trainer
from tests.agent.gateways import ScriptedGateway
from tests.ground.processes import wait_until


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.fixture
def connection(gateway: ScriptedGateway) -> Iterator[Connection]:
    opened = Connection(gateway.endpoint)
    yield opened
    opened.close()


def spoil(folder: Path, payload: bytes) -> None:
    """Inverts a byte in the middle of a payload, wherever it lies in the spool."""
    for path in folder.glob("*.seg"):
        data = bytearray(path.read_bytes())
        at = data.find(payload)
        if at >= 0:
            data[at + len(payload) // 2] ^= 0xFF
            path.write_bytes(data)
            return
    raise AssertionError("the payload is nowhere")


def gaps_of(root: Path) -> list[dict[str, Any]]:
    """The gaps in all statements below a root."""
    found: list[dict[str, Any]] = []
    for folder in spools(root):
        reader = SpoolReader(folder)
        frame = reader.next(0)
        if frame is not None and frame.is_last:
            found += table_rows_of(Batch.FromString(frame.payload), "gaps")
        reader.close()
    return found


def deliver(folder: Path, connection: Connection) -> None:
    adopted = Adopted(folder, connect=lambda _: connection)
    wait_until(adopted.sender.is_delivered, what="deliver the rest")
    adopted.close()


def test_damaged_batches_are_stated_with_their_exact_rows_and_the_others_delivered(
    gateway: ScriptedGateway, connection: Connection, tmp_path: Path
) -> None:
    trainer = Trainer(tmp_path / "spool")
    for rows in (3, 4, 5, 6, 7, 8):
        trainer.append(rows=rows)
    spoil(trainer.folder, trainer.batches[2].payload)
    spoil(trainer.folder, trainer.batches[3].payload)

    deliver(trainer.folder, connection)

    trainer.end()
    assert [one.seq for one in gateway.accepted] == [0, 1, 4, 5]
    (gap,) = gaps_of(tmp_path / "spool")
    assert (gap["cause"], gap["data_kind"], gap["count"]) == ("spool_corrupt", "scalars", 11)
    assert (gap["seq_from"], gap["seq_to"]) == (2, 3)


def test_a_segment_that_vanished_is_stated_when_what_follows_it_goes(
    gateway: ScriptedGateway, connection: Connection, tmp_path: Path
) -> None:
    trainer = Trainer(tmp_path / "spool")
    trainer.append(2, rows=3)
    spoil(trainer.folder, trainer.batches[0].payload)

    deliver(trainer.folder, connection)

    trainer.end()
    (gap,) = gaps_of(tmp_path / "spool")
    assert (gap["seq_from"], gap["seq_to"], gap["count"]) == (0, 0, 3)


def test_damage_is_stated_once_whoever_looks_again(
    gateway: ScriptedGateway, connection: Connection, tmp_path: Path
) -> None:
    gateway.durable_below = 1
    trainer = Trainer(tmp_path / "spool")
    trainer.append(3)
    spoil(trainer.folder, trainer.batches[1].payload)

    for _ in range(3):
        adopted = Adopted(trainer.folder, connect=lambda _: connection)
        wait_until(lambda: len(spools(tmp_path / "spool")) == 2, what="state it")
        adopted.close()

    trainer.end()
    assert len(gaps_of(tmp_path / "spool")) == 1


def test_what_lies_behind_a_hole_is_read_once_however_many_holes_there_are(
    gateway: ScriptedGateway, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_writer, "SEGMENT_BYTES", 8_192)
    monkeypatch.setattr(_writer, "MIN_SEGMENT_BYTES", 8_192)
    trainer = Trainer(tmp_path / "spool")
    trainer.append(400)
    damaged = range(15, 400, 30)
    for seq in damaged:
        spoil(trainer.folder, trainer.batches[seq].payload)
    size = sum(path.stat().st_size for path in trainer.folder.glob("*.seg"))
    reads: list[int] = []
    pread = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        data = pread(descriptor, length, offset)
        reads.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    deliver(trainer.folder, connection)

    assert len(list(trainer.folder.glob("*.seg"))) < size // 8_192 // 2
    assert sum(reads) < 4 * size
    trainer.end()
    assert sorted(int(gap["seq_from"]) for gap in gaps_of(tmp_path / "spool")) == list(damaged)


def test_segments_that_are_damaged_in_a_row_are_stated_with_their_exact_rows(
    gateway: ScriptedGateway, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_writer, "SEGMENT_BYTES", 8_192)
    monkeypatch.setattr(_writer, "MIN_SEGMENT_BYTES", 8_192)
    trainer = Trainer(tmp_path / "spool")
    trainer.append(300)
    paths = sorted(trainer.folder.glob("*.seg"))
    for path in paths[2:6]:
        path.write_bytes(bytes(path.stat().st_size))
    seqs = range(int(paths[2].stem), int(paths[6].stem))

    deliver(trainer.folder, connection)

    trainer.end()
    (gap,) = gaps_of(tmp_path / "spool")
    assert (gap["seq_from"], gap["seq_to"] + 1) == (seqs.start, seqs.stop)
    assert (gap["data_kind"], gap["count"]) == ("scalars", 3 * len(seqs))


def test_a_statement_made_again_is_the_same_batch_and_a_gateway_takes_it(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path / "spool")
    trainer.end()
    head = SpoolHead.read(trainer.folder)
    loss = Loss(GapCause.SPOOL_CORRUPT, (2, 3), {"scalars": 4, "spans": 1}, head.created_ns, "found so")
    frames: list[Frame] = []
    for root in (tmp_path / "one", tmp_path / "two"):
        Courier(root).state(head, loss, key=None)
        Courier(root).state(head, loss, key=None)
        (folder,) = spools(root)
        reader = SpoolReader(folder)
        frame = reader.next(0)
        assert frame is not None
        frames.append(frame)
        sealed = Sealed(
            payload=frame.payload,
            incarnation=reader.head.incarnation,
            seq=0,
            digest=frame.digest,
            rows=frame.rows,
            week=frame.week,
        )
        check(sealed, now_ns=head.created_ns)
        reader.close()

    assert frames[0] == frames[1]


def test_a_half_made_statement_is_made_anew(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path / "spool")
    trainer.end()
    head = SpoolHead.read(trainer.folder)
    loss = Loss(GapCause.TAIL_UNKNOWN, None, {}, head.created_ns)
    courier = Courier(tmp_path / "one")
    courier.state(head, loss, key=None)
    (folder,) = spools(tmp_path / "one")
    for segment in folder.glob("*.seg"):
        segment.unlink()

    courier.state(head, loss, key=None)

    assert [gap["cause"] for gap in gaps_of(tmp_path / "one")] == ["tail_unknown"]


def test_gaps_inside_a_lost_batch_are_lost_rows_too() -> None:
    batch = Batch(strings=["", "ring_full", "spans"])
    getattr(batch.gaps, "class").append(1)
    batch.gaps.cause.append(1)
    batch.gaps.data_kind.append(2)
    batch.gaps.count.append(40)
    batch.gaps.start.append(1)
    payload = batch.SerializeToString()

    rows = rows_of(Frame(payload, 0, payload_digest(payload), 1, 0, 0, is_last=False))

    assert rows == Counter({"spans": 40, "gaps": 1})
    assert rows_of(Frame(b"\xff", 0, b"", 7, 0, 0, is_last=False)) == Counter({"": 7})


def test_a_hole_is_passed_over_only_when_all_below_it_is_durable() -> None:
    window = Window(Stand(0, 0), again_below=0)
    window.begin(Stand(0, 0))
    window.send(0, 10)
    window.take(Ack(outcome=Ack.OUTCOME_ACCEPTED, accepted=1, durable=0, credit=1000))

    assert not window.may_send(3, 10)
    window.learn(Stand(1, 1))
    assert window.may_send(3, 10)
    window.send(3, 10)
    assert window.base == 3


def test_what_came_too_early_goes_again_from_where_it_is_expected() -> None:
    window = Window(Stand(0, 0), again_below=0)
    window.begin(Stand(0, 0))
    for seq in range(3):
        window.send(seq, 10)

    early = Ack(outcome=Ack.OUTCOME_EXPECTED, accepted=0, expected=0, credit=1000)
    for _ in range(2):
        window.take(early)
        assert not window.may_send(3, 10)
    window.take(early)

    assert window.next_seq == 0
    assert not window.send(0, 10)


def test_credit_bounds_what_is_on_the_way_but_one_may_always_go() -> None:
    window = Window(Stand(0, 0), again_below=0)
    window.begin(None)
    assert window.may_send(0, 2**30)
    window.send(0, 100)
    window.take(Ack(outcome=Ack.OUTCOME_ACCEPTED, accepted=1, credit=150))
    window.send(1, 100)

    assert not window.may_send(2, 51)
    assert window.may_send(2, 50)


def test_a_duplicate_of_what_was_never_sent_here_means_that_somebody_else_sends_it() -> None:
    window = Window(Stand(0, 0), again_below=0)
    window.begin(Stand(0, 0))
    assert not window.send(0, 10)
    window.take(Ack(outcome=Ack.OUTCOME_DUPLICATE, accepted=5, durable=0, credit=1000))

    assert window.next_seq == 5
    assert window.send(5, 10)
