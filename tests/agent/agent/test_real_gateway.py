"""A sender against a real gateway over a real broker: access, cuts on the way, batches that are too large."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from rankscope._connection import Access, Connection
from rankscope._export import SealedBatch
from rankscope.agent.adopt import Adopted
from rankscope.spool import spools
from rankscope_ingest.statuses import retry_details
from rankscope_proto.identity import SHARDS, payload_digest
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.agent.spools import Trainer
from tests.agent.gateways import ScriptedGateway, refuse
from tests.ground.brokers import Broker
from tests.ground.certificates import Authority
from tests.ground.processes import Child, Children, answers, free_port, python, wait_until
from tests.ground.proxy import Cut, Proxy
from tests.ground.stacks import clean_environ
from tests.ingest.gateways import Keys
from tests.ingest.looking import batches_in, entries_in

Send = Callable[..., Adopted]


class Gateway:
    """A gateway as a process of its own."""

    def __init__(self, children: Children, broker: Broker, **settings: str) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        told = {"RANKSCOPE_REDIS_URL": broker.url, "RANKSCOPE_GATEWAY_LISTEN": self.address, **settings}
        self.child: Child = children.start(
            python("rankscope", "gateway"), name="gateway", environ=clean_environ(**told)
        )
        self.child.await_that(lambda: answers(self.port), what="listen")


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path / "spool")
    yield made
    made.end()


@pytest.fixture
def send() -> Iterator[Send]:
    begun: list[tuple[Adopted, Connection]] = []

    def begin(trainer: Trainer, endpoint: str, *, access: Access | None = None, keys: tuple[str, ...] = ()) -> Adopted:
        connection = Connection(endpoint, access)
        adopted = Adopted(
            trainer.folder,
            connect=lambda _: connection,
            keys=lambda reader: [*keys, *([reader.key] if reader.key else [])],
        )
        begun.append((adopted, connection))
        return adopted

    yield begin
    for adopted, connection in begun:
        adopted.close()
        connection.close()


def accepted(adopted: Adopted, count: int) -> Callable[[], bool]:
    return lambda: adopted.sender.stand.accepted == count


def seqs_in(broker: Broker) -> list[int]:
    return sorted(batch.header.seq for batch in batches_in(broker))


@pytest.mark.parametrize("cut", list(Cut))
def test_connections_cut_at_a_batch_have_each_in_the_broker_once(
    children: Children, broker: Broker, trainer: Trainer, send: Send, cut: Cut
) -> None:
    proxy = Proxy(Gateway(children, broker).address)
    try:
        adopted = send(trainer, proxy.address)
        for _ in range(3):
            proxy.cut(cut, at_least=1 if cut is Cut.MID_REPLY else 200)
            trainer.append(5, rows=50)
            wait_until(accepted(adopted, trainer.writer.next_seq), what="be accepted")
        assert proxy.cuts > 0
        assert seqs_in(broker) == list(range(15))
    finally:
        proxy.stop()


def test_a_broker_that_lost_everything_gets_all_that_is_not_durable_again(
    children: Children, broker: Broker, trainer: Trainer, send: Send
) -> None:
    adopted = send(trainer, Gateway(children, broker).address)
    trainer.append(5)
    wait_until(accepted(adopted, 5), what="be accepted")

    with broker.client() as client:
        client.flushall()
    trainer.append()

    wait_until(lambda: seqs_in(broker) == list(range(6)), what="come again")
    marks = Counter(fields[b"again"] for shard in range(SHARDS) for fields in entries_in(broker, shard))
    assert marks == {b"1": 5, b"0": 1}


def test_a_batch_above_the_limit_is_set_aside_and_its_neighbours_arrive(
    children: Children, broker: Broker, trainer: Trainer, send: Send, tmp_path: Path
) -> None:
    trainer.append()
    message = Batch.FromString(trainer.seal().payload)
    message.strings.append("x" * 5 * 2**20)
    payload = message.SerializeToString()
    large = SealedBatch(
        payload, trainer.identity.incarnation, 1, payload_digest(payload), 3, message.header.week, {"scalars": 3}
    )
    assert trainer.writer.append(large)
    trainer.append()

    adopted = send(trainer, Gateway(children, broker).address)

    wait_until(lambda: len(spools(tmp_path / "spool")) == 2, what="state it")
    assert (trainer.folder / "bad" / f"{1:020d}.batch").stat().st_size == len(payload)
    # What follows waits until all below the hole is durable, which nobody makes it here.
    assert adopted.sender.stand.accepted == 1
    assert seqs_in(broker) == [0]


def test_a_delay_that_is_asked_for_is_waited_out(trainer: Trainer, send: Send) -> None:
    details = retry_details(grpc.StatusCode.RESOURCE_EXHAUSTED, "later", retry_after_ms=900)
    gateway = ScriptedGateway()
    came: list[float] = []

    def note_and_refuse(*given: object) -> None:
        came.append(time.monotonic())
        refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, "later", details=details)(*given)  # type: ignore[arg-type]

    def note(*_given: object) -> None:
        came.append(time.monotonic())

    gateway.answers.extend([note_and_refuse, note])
    trainer.append()

    adopted = send(trainer, gateway.endpoint)

    wait_until(adopted.sender.is_delivered, what="deliver")
    adopted.close()
    gateway.stop()
    assert came[1] - came[0] >= 0.9


def test_a_revoked_key_stops_it_and_the_right_one_lets_it_go_on(
    children: Children, broker: Broker, tmp_path: Path, send: Send
) -> None:
    keys = Keys(tmp_path)
    first = keys.new("p")
    gateway = Gateway(children, broker, RANKSCOPE_KEYS=str(keys.path))
    trainer = Trainer(tmp_path / "spool", key=first)
    adopted = send(trainer, gateway.address)
    trainer.append()
    wait_until(accepted(adopted, 1), what="be accepted")

    keys.revoke(first)
    gateway.child.signal(0)  # it runs
    trainer.append()
    wait_until(lambda: _is_denied(adopted, trainer), timeout_s=60, what="be denied")
    assert first not in adopted.failure
    (trainer.folder / "key").write_text(keys.new("p"))

    wait_until(lambda: adopted.sender.stand.accepted == trainer.writer.next_seq, timeout_s=60, what="go on")
    trainer.end()
    assert seqs_in(broker) == list(range(trainer.writer.next_seq))


def _is_denied(adopted: Adopted, trainer: Trainer) -> bool:
    if "denies access" in adopted.failure:
        return True
    trainer.append()
    return False


def test_a_key_of_another_project_leaves_the_data_where_it_is(
    children: Children, broker: Broker, trainer: Trainer, tmp_path: Path, send: Send
) -> None:
    keys = Keys(tmp_path)
    gateway = Gateway(children, broker, RANKSCOPE_KEYS=str(keys.new("another") and keys.path))
    trainer.append(3)

    adopted = send(trainer, gateway.address, keys=(keys.new("another"),))

    wait_until(lambda: "PERMISSION_DENIED" in adopted.failure, what="be denied")
    assert not batches_in(broker)
    assert adopted.reader.next(0) is not None


def test_over_tls_it_arrives_and_a_gateway_of_another_authority_gets_nothing(
    children: Children, broker: Broker, trainer: Trainer, tmp_path: Path, send: Send
) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    pair = ours.signed("server")
    keys = Keys(tmp_path)
    key = keys.new("p")
    gateway = Gateway(
        children,
        broker,
        RANKSCOPE_TLS_CERT=str(pair.cert),
        RANKSCOPE_TLS_KEY=str(pair.key),
        RANKSCOPE_KEYS=str(keys.path),
    )
    trainer.append(3)

    wrong = send(trainer, f"https://{gateway.address}", access=Access(key, tls_ca=theirs.ca))
    wait_until(lambda: "UNAVAILABLE" in wrong.failure, what="fail")
    assert not batches_in(broker)
    wrong.close()

    right = send(trainer, f"https://{gateway.address}", access=Access(key, tls_ca=ours.ca))
    wait_until(accepted(right, 3), what="be accepted")


def test_a_certificate_that_cannot_be_read_is_named(trainer: Trainer, tmp_path: Path, send: Send) -> None:
    trainer.append()

    adopted = send(trainer, "https://127.0.0.1:1", access=Access(tls_ca=tmp_path / "absent.pem"))

    wait_until(lambda: "RANKSCOPE_TLS_CA" in adopted.failure, what="say so")
    assert "absent.pem" in adopted.failure
