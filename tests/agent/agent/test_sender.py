"""One spool to a gateway: each batch once and in order, whatever it answers."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from rankscope._connection import Access, Connection
from rankscope.agent.adopt import Adopted
from rankscope.agent.sender import Sender
from rankscope.spool import Frame, SpoolReader, mark_copied, spools
from rankscope.testing import rows_of
from rankscope_ingest.statuses import retry_details
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Ack
from tests.agent.agent.spools import Trainer
from tests.agent.gateways import ScriptedGateway, refuse, say
from tests.ground.processes import wait_until

Send = Callable[[Path], Adopted]


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path / "spool")
    yield made
    made.end()


@pytest.fixture
def send(gateway: ScriptedGateway) -> Iterator[Send]:
    connection = Connection(gateway.endpoint)
    open_ones: list[Adopted] = []

    def begin(folder: Path) -> Adopted:
        adopted = Adopted(folder, connect=lambda _: connection)
        open_ones.append(adopted)
        return adopted

    yield begin
    for adopted in open_ones:
        adopted.close()
    connection.close()


def seqs(gateway: ScriptedGateway) -> list[int]:
    return [one.seq for one in gateway.accepted]


def delivered(sender: Sender) -> Callable[[], bool]:
    return sender.is_delivered


def test_batches_arrive_whole_and_in_order_and_the_trainer_hears_of_it(
    gateway: ScriptedGateway, trainer: Trainer, send: Send
) -> None:
    trainer.append(20)

    adopted = send(trainer.folder)

    wait_until(lambda: trainer.writer.durable == 20, what="be durable")
    assert [(one.payload, one.digest, one.seq, one.rows, one.week) for one in gateway.accepted] == [
        (one.payload, one.digest, one.seq, one.rows, one.week) for one in trainer.batches
    ]
    assert not any(one.again for one in gateway.accepted)
    assert adopted.sender.stand == (20, 20)


def test_a_batch_that_comes_while_a_spool_is_found_empty_is_not_taken_for_stored(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.durable_below = 0
    read = SpoolReader.next

    def looked(reader: SpoolReader, seq: int) -> Frame | None:
        frame = read(reader, seq)
        if frame is None and not trainer.batches:
            trainer.append()
        return frame

    monkeypatch.setattr(SpoolReader, "next", looked)

    send(trainer.folder)

    wait_until(lambda: len(gateway.accepted) == 1, what="arrive")
    assert trainer.writer.durable == 0


def test_the_end_of_a_spool_is_looked_for_only_where_everything_sent_is_in_the_store(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.durable_below = 0
    stands: list[tuple[int, int]] = []
    look = SpoolReader._look_at_end  # pyright: ignore[reportPrivateUsage]

    def noted(reader: SpoolReader) -> None:
        stands.append(adopted.sender.stand)
        look(reader)

    adopted = send(trainer.folder)
    monkeypatch.setattr(SpoolReader, "_look_at_end", noted)
    for count in (1, 2, 3):
        trainer.append()
        wait_until(lambda count=count: trainer.writer.accepted == count, what="be noted as accepted")
    gateway.durable_below = None
    trainer.append(is_last=True)

    wait_until(lambda: trainer.writer.durable == 4, what="be noted as durable")
    assert all(accepted == durable for accepted, durable in stands), stands


def test_batches_appended_later_go_at_once(gateway: ScriptedGateway, trainer: Trainer, send: Send) -> None:
    send(trainer.folder)
    for count in (1, 2, 3):
        trainer.append()
        wait_until(lambda count=count: len(gateway.accepted) == count, what="arrive")


def test_what_is_durable_is_asked_for_when_no_more_batches_come(
    gateway: ScriptedGateway, trainer: Trainer, send: Send
) -> None:
    gateway.durable_below = 0
    trainer.append(3, is_last=True)
    send(trainer.folder)
    wait_until(lambda: trainer.writer.accepted == 3, what="be accepted")
    assert trainer.writer.durable == 0

    gateway.durable_below = 3

    wait_until(lambda: trainer.writer.durable == 3, what="be durable")
    assert gateway.arrived == [0, 1, 2]


def test_what_is_sent_beside_a_copy_may_have_been_sent_before(
    gateway: ScriptedGateway, trainer: Trainer, send: Send
) -> None:
    trainer.append()
    send(trainer.folder)
    wait_until(lambda: len(gateway.accepted) == 1, what="arrive")

    mark_copied(trainer.folder)
    trainer.append()

    wait_until(lambda: len(gateway.accepted) == 2, what="arrive")
    assert [one.again for one in gateway.accepted] == [False, True]


def test_a_broker_that_lost_its_tail_gets_it_again_marked_as_such(
    gateway: ScriptedGateway, trainer: Trainer, send: Send
) -> None:
    gateway.durable_below = 2
    trainer.append(5, is_last=True)
    send(trainer.folder)
    wait_until(lambda: len(gateway.accepted) == 5, what="be accepted")

    gateway.forget(from_seq=3)

    wait_until(lambda: seqs(gateway) == [0, 1, 2, 3, 4, 3, 4], what="come again")
    assert [one.again for one in gateway.accepted] == [False] * 5 + [True] * 2


def test_a_broker_that_lost_everything_gets_what_is_not_durable(
    gateway: ScriptedGateway, trainer: Trainer, send: Send
) -> None:
    gateway.durable_below = 2
    trainer.append(4)
    send(trainer.folder)
    wait_until(lambda: trainer.writer.durable == 2, what="be durable")

    gateway.forget()
    trainer.append()

    wait_until(lambda: seqs(gateway)[-1] == 4 and len(gateway.accepted) == 7, what="come again")
    assert [(one.seq, one.again) for one in gateway.accepted[4:]] == [(2, True), (3, True), (4, False)]
    assert [one.base for one in gateway.accepted[4:]] == [2, 2, 2]


def test_a_gateway_that_cannot_say_where_senders_stand_is_sent_all_that_is_not_durable(
    gateway: ScriptedGateway, trainer: Trainer, send: Send
) -> None:
    gateway.stands = False
    trainer.append(3)

    adopted = send(trainer.folder)

    wait_until(lambda: trainer.writer.durable == 3, what="be durable")
    assert adopted.sender.is_delivered()


def test_a_batch_refused_for_good_is_set_aside_stated_and_passed_over(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, tmp_path: Path
) -> None:
    refusal = refuse(grpc.StatusCode.INVALID_ARGUMENT, "scalars.time: 5 is before 2000")
    gateway.answers.extend([say(None), refusal, refusal, refusal])
    trainer.append(4, rows=7)

    adopted = send(trainer.folder)

    wait_until(adopted.sender.is_delivered, what="deliver the rest")
    assert seqs(gateway) == [0, 2, 3]
    assert gateway.accepted[1].base == 2
    assert (trainer.folder / "bad" / f"{1:020d}.batch").read_bytes() == trainer.batches[1].payload
    (statement,) = [folder for folder in spools(tmp_path / "spool") if folder != trainer.folder]
    gap = stated(statement)
    assert (gap["cause"], gap["data_kind"], gap["count"]) == ("quarantined", "scalars", 7)
    assert (gap["seq_from"], gap["seq_to"]) == (1, 1)
    assert "scalars.time: 5 is before 2000" in str(gap["detail"])
    assert int(str(gap["incarnation_hi"])).to_bytes(8, "big") == trainer.identity.incarnation[:8]
    assert int(str(gap["incarnation_lo"])).to_bytes(8, "big") == trainer.identity.incarnation[8:]


def test_a_batch_that_arrives_spoilt_is_sent_again_until_it_arrives_whole(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, tmp_path: Path
) -> None:
    spoilt = refuse(grpc.StatusCode.INVALID_ARGUMENT, "digest: not the BLAKE2b-128 of the payload; the bytes changed")
    others = [refuse(grpc.StatusCode.INVALID_ARGUMENT, f"rows: the envelope says {rows}") for rows in (3, 67)]
    gateway.answers.extend([spoilt, spoilt, spoilt, spoilt, *others])
    trainer.append(2)

    adopted = send(trainer.folder)

    wait_until(adopted.sender.is_delivered, what="deliver")
    assert seqs(gateway) == [0, 1]
    assert spools(tmp_path / "spool") == [trainer.folder]


def stated(folder: Path) -> dict[str, object]:
    """The one gap that a statement's spool holds."""
    reader = SpoolReader(folder)
    frame = reader.next(0)
    assert frame is not None
    assert frame.is_last
    reader.close()
    (gap,) = rows_of(Batch.FromString(frame.payload), "gaps")
    return gap


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL]
)
def test_a_passing_failure_loses_nothing(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, code: grpc.StatusCode
) -> None:
    details = retry_details(code, "later", retry_after_ms=50)
    gateway.answers.extend([say(None), refuse(code, "later", details=details), refuse(code, "later")])
    trainer.append(5)

    adopted = send(trainer.folder)

    wait_until(adopted.sender.is_delivered, what="deliver")
    assert seqs(gateway) == [0, 1, 2, 3, 4]


def test_no_room_without_a_word_on_when_is_tried_thrice_and_then_taken_for_too_large(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, tmp_path: Path
) -> None:
    gateway.answers.extend([refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max")] * 3)
    trainer.append(3)

    adopted = send(trainer.folder)

    wait_until(adopted.sender.is_delivered, what="deliver the rest")
    assert seqs(gateway) == [1, 2]
    (statement,) = [folder for folder in spools(tmp_path / "spool") if folder != trainer.folder]
    assert stated(statement)["cause"] == "oversize"


def test_another_payload_under_the_same_number_is_stated(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, tmp_path: Path
) -> None:
    gateway.answers.append(say(Ack(outcome=Ack.OUTCOME_CONFLICT, accepted=1, durable=1, credit=2**20)))
    gateway.forget(from_seq=0)
    trainer.append()

    adopted = send(trainer.folder)

    wait_until(lambda: len(spools(tmp_path / "spool")) == 2, what="state it")
    assert adopted.sender.is_delivered()


def test_without_room_it_waits_as_told(gateway: ScriptedGateway, trainer: Trainer, send: Send) -> None:
    full = Ack(outcome=Ack.OUTCOME_EXPECTED, accepted=0, expected=0, credit=0, retry_after_ms=50)
    gateway.answers.extend([say(full), say(full)])
    trainer.append(5)

    adopted = send(trainer.folder)

    wait_until(adopted.sender.is_delivered, what="deliver")
    assert seqs(gateway) == [0, 1, 2, 3, 4]
    assert not any(one.again for one in gateway.accepted)


def test_the_spool_of_a_dead_trainer_is_removed_once_durable_and_its_tail_is_said_to_be_unknown(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, tmp_path: Path
) -> None:
    trainer.append(2)
    adopted = send(trainer.folder)
    wait_until(adopted.sender.is_delivered, what="deliver")
    assert not adopted.finish()

    trainer.end()

    assert adopted.finish()
    (statement,) = spools(tmp_path / "spool")
    gap = stated(statement)
    assert (gap["cause"], gap["count"]) == ("tail_unknown", 0)


def test_a_trainer_that_said_its_last_word_leaves_nothing(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, tmp_path: Path
) -> None:
    trainer.append(2, is_last=True)
    trainer.end()
    adopted = send(trainer.folder)

    wait_until(adopted.finish, what="be removed")

    assert spools(tmp_path / "spool") == []


def test_a_sender_after_another_says_again_of_what_that_one_may_have_sent(
    gateway: ScriptedGateway, trainer: Trainer, send: Send
) -> None:
    gateway.durable_below = 0
    trainer.append(2)
    first = send(trainer.folder)
    wait_until(lambda: trainer.writer.accepted == 2, what="be accepted")
    first.close()
    gateway.forget()

    send(trainer.folder)

    wait_until(lambda: len(gateway.accepted) == 4, what="come again")
    assert [one.again for one in gateway.accepted] == [False, False, True, True]


def test_a_stream_that_stops_answering_is_opened_anew(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope.agent.sender.WATCHDOG_S", 0.3)
    gateway.stands = False
    gateway.frozen.set()
    trainer.append()
    adopted = send(trainer.folder)

    wait_until(lambda: gateway.arrived.count(0) >= 2, what="send again")
    gateway.frozen.clear()

    wait_until(adopted.sender.is_delivered, what="deliver")
    assert len(gateway.accepted) == 1


def test_nothing_moving_for_long_has_what_is_not_durable_sent_again(
    gateway: ScriptedGateway, trainer: Trainer, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope.agent.sender.STALLED_S", 0.5)
    gateway.durable_below = 1
    trainer.append(3)

    send(trainer.folder)

    wait_until(lambda: gateway.arrived.count(1) >= 2, what="ask again")
    assert seqs(gateway) == [0, 1, 2]


def test_a_second_gateway_is_used_where_the_first_is_gone(gateway: ScriptedGateway, trainer: Trainer) -> None:
    gone = ScriptedGateway()
    gone.stop()
    connection = Connection([gone.endpoint, gateway.endpoint])
    trainer.append(2)

    adopted = Adopted(trainer.folder, connect=lambda _: connection)

    wait_until(adopted.sender.is_delivered, what="deliver")
    adopted.close()
    connection.close()
    assert seqs(gateway) == [0, 1]
    assert adopted.sender.endpoint == gateway.endpoint


def test_a_key_goes_with_every_call_and_the_next_is_tried_when_one_is_denied(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    trainer = Trainer(tmp_path / "spool", key="rsk_wrong")
    trainer.append()
    gateway.answers.append(refuse(grpc.StatusCode.UNAUTHENTICATED, "not a key"))
    connection = Connection(gateway.endpoint)

    adopted = Adopted(trainer.folder, connect=lambda _: connection, keys=lambda reader: [str(reader.key), "rsk_right"])

    wait_until(adopted.sender.is_delivered, what="deliver")
    adopted.close()
    connection.close()
    trainer.end()
    assert gateway.keys == ["Bearer rsk_wrong", "Bearer rsk_right"]


def test_a_key_never_crosses_a_network_in_plaintext(trainer: Trainer) -> None:
    connection = Connection("gateway.example:8471", Access(key="rsk_secret"))
    trainer.append()

    adopted = Adopted(trainer.folder, connect=lambda _: connection)

    wait_until(lambda: "in plaintext" in adopted.failure, what="refuse to send")
    assert "rsk_secret" not in adopted.failure
    adopted.close()
    connection.close()


def test_a_closed_sender_leaves_no_thread(gateway: ScriptedGateway, trainer: Trainer, send: Send) -> None:
    trainer.append()
    adopted = send(trainer.folder)
    wait_until(adopted.sender.is_delivered, what="deliver")

    adopted.close()

    assert not [thread for thread in threading.enumerate() if thread.name == "rankscope-send"]
