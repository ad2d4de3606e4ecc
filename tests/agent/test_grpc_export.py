"""Batches over real gRPC: each once and in order, whatever the gateway answers."""

import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from rankscope import Run
from rankscope._connection import Connection, failure_of
from rankscope._export import SealedBatch
from rankscope._grpc_export import GrpcExporter
from rankscope._retry_info import retry_after_s
from rankscope._window import Window
from rankscope.errors import ExportError, Rejected, Unavailable
from rankscope.testing import rows_of
from rankscope_ingest.statuses import retry_details
from rankscope_proto.identity import payload_digest
from rankscope_proto.names import GapCause
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Ack
from tests.agent.gateways import ScriptedGateway, refuse, say
from tests.ground.processes import wait_until


def batch(seq: int, size: int = 10) -> SealedBatch:
    payload = bytes([seq % 256]) * size
    return SealedBatch(payload, b"i" * 16, seq, payload_digest(payload), 3, 20_000, {"spans": 3})


def window_of(*seqs: int) -> Window:
    window = Window()
    for seq in seqs:
        window.add(batch(seq))
    return window


class Ended(grpc.RpcError, grpc.Call):
    """What grpc raises, with the status of one's choice."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "words"

    def trailing_metadata(self) -> tuple[()]:
        return ()

    initial_metadata = trailing_metadata

    def is_active(self) -> bool:
        return False

    cancel = is_active

    def time_remaining(self) -> float:
        return 0.0

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return False


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.fixture
def exporter(gateway: ScriptedGateway) -> Iterator[GrpcExporter]:
    connection = Connection(gateway.endpoint)
    sender = GrpcExporter(connection)
    yield sender
    sender.close(1.0)
    connection.close()


def test_batches_arrive_whole_and_in_order(gateway: ScriptedGateway, exporter: GrpcExporter) -> None:
    sent = [batch(seq) for seq in range(20)]

    assert all(exporter.send(one) for one in sent)

    assert exporter.flush(20) == 0
    assert exporter.unsent_rows() == 0
    assert [(one.payload, one.digest, one.seq, one.rows, one.week) for one in gateway.accepted] == [
        (one.payload, one.digest, one.seq, one.rows, one.week) for one in sent
    ]


def test_a_batch_refused_for_good_is_reported_and_the_rest_arrives(
    gateway: ScriptedGateway, exporter: GrpcExporter
) -> None:
    gateway.answers.append(refuse(grpc.StatusCode.INVALID_ARGUMENT, "spans.start: 5 is before 2000"))

    for seq in range(5):
        exporter.send(batch(seq))

    assert exporter.flush(20) == 0
    (refusal,) = exporter.take_refused()
    assert (refusal.batch.seq, refusal.cause) == (0, GapCause.QUARANTINED)
    assert "spans.start: 5 is before 2000" in refusal.detail
    assert [one.seq for one in gateway.accepted] == [1, 2, 3, 4]
    assert exporter.take_refused() == []


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL]
)
def test_a_passing_failure_loses_nothing(
    gateway: ScriptedGateway, exporter: GrpcExporter, code: grpc.StatusCode
) -> None:
    details = retry_details(code, "later", retry_after_ms=50)
    gateway.answers.extend([say(None), refuse(code, "later", details=details), refuse(code, "later")])

    for seq in range(5):
        exporter.send(batch(seq))

    assert exporter.flush(20) == 0
    assert [one.seq for one in gateway.accepted] == [0, 1, 2, 3, 4]
    assert exporter.take_refused() == []


def test_without_room_it_waits_as_told_and_goes_on_from_the_lowest_held(
    gateway: ScriptedGateway, exporter: GrpcExporter
) -> None:
    full = Ack(outcome=Ack.OUTCOME_EXPECTED, accepted=0, expected=0, credit=0, retry_after_ms=50)
    gateway.answers.extend([say(full), say(full)])

    for seq in range(5):
        exporter.send(batch(seq))

    assert exporter.flush(20) == 0
    assert [one.seq for one in gateway.accepted] == [0, 1, 2, 3, 4]


def test_an_answer_that_covers_more_than_its_batch_frees_them_all(
    gateway: ScriptedGateway, exporter: GrpcExporter
) -> None:
    gateway.answers.append(say(Ack(outcome=Ack.OUTCOME_DUPLICATE, accepted=3, credit=2**20)))

    for seq in range(3):
        exporter.send(batch(seq))

    assert exporter.flush(20) == 0


def test_another_payload_under_the_same_number_is_reported(gateway: ScriptedGateway, exporter: GrpcExporter) -> None:
    gateway.answers.append(say(Ack(outcome=Ack.OUTCOME_CONFLICT, accepted=1, credit=2**20)))

    exporter.send(batch(0))

    assert exporter.flush(20) == 0
    assert [refusal.cause for refusal in exporter.take_refused()] == [GapCause.CONFLICT]


def test_a_gateway_that_comes_later_gets_everything() -> None:
    early = ScriptedGateway()
    port = early.port
    early.stop()
    connection = Connection(f"127.0.0.1:{port}")
    exporter = GrpcExporter(connection)
    for seq in range(3):
        assert exporter.send(batch(seq))

    assert exporter.flush(0.3) == 3
    assert exporter.unsent_rows() == 9
    late = ScriptedGateway(port)

    try:
        wait_until(lambda: exporter.flush(1) == 0, what="accept all")
        assert [one.seq for one in late.accepted] == [0, 1, 2]
    finally:
        exporter.close(1)
        connection.close()
        late.stop()


def test_a_window_that_is_full_says_so_at_once(gateway: ScriptedGateway, exporter: GrpcExporter) -> None:
    gateway.frozen.set()

    taken = [exporter.send(batch(seq, 1024 * 1024)) for seq in range(40)]

    assert taken == [True] * 16 + [False] * 24
    gateway.frozen.clear()
    assert exporter.flush(20) == 0


def test_a_stream_that_stops_answering_is_opened_anew(
    gateway: ScriptedGateway, exporter: GrpcExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope._grpc_export.WATCHDOG_S", 0.3)
    gateway.frozen.set()
    exporter.send(batch(0))

    wait_until(lambda: gateway.arrived.count(0) >= 2, what="send again")
    gateway.frozen.clear()

    wait_until(lambda: exporter.flush(1) == 0, what="accept all")
    assert len(gateway.accepted) == 1


def test_a_flush_without_progress_ends_before_its_time(
    gateway: ScriptedGateway, exporter: GrpcExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope._grpc_export.STALL_S", 0.1)
    gateway.frozen.set()
    exporter.send(batch(0))

    assert exporter.flush(3_600) == 1


def test_a_closed_exporter_takes_nothing_and_leaves_no_thread(gateway: ScriptedGateway) -> None:
    connection = Connection(gateway.endpoint)
    exporter = GrpcExporter(connection)
    exporter.send(batch(0))
    exporter.flush(20)

    exporter.close(5)
    connection.close()

    assert not exporter.send(batch(1))
    assert not [thread for thread in threading.enumerate() if thread.name == "rankscope-send"]


def test_rows_of_a_refused_batch_are_stated_as_a_gap(gateway: ScriptedGateway, exporter: GrpcExporter) -> None:
    gateway.answers.append(refuse(grpc.StatusCode.INVALID_ARGUMENT, "no"))
    run = Run(exporter)
    wait_until(lambda: bool(gateway.arrived), what="send")
    wait_until(lambda: exporter.unsent_rows() == 0, what="be refused")
    run.finish()

    messages = [Batch.FromString(one.payload) for one in gateway.accepted]
    (gap,) = [row for message in messages for row in rows_of(message, "gaps")]
    assert (gap["data_kind"], gap["count"], gap["seq_from"], gap["seq_to"]) == ("run_info", 1, 0, 0)
    assert messages[-1].header.emitted_run_info == 2


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_every_status_has_a_meaning(code: grpc.StatusCode) -> None:
    failure = failure_of(Ended(code), "host:1")

    assert isinstance(failure.error, ExportError)
    assert isinstance(failure.error, Rejected if code is grpc.StatusCode.INVALID_ARGUMENT else Unavailable)
    assert "host:1" in str(failure.error)
    assert "words" in str(failure.error)


@pytest.mark.parametrize(
    ("details", "delay"),
    [
        (retry_details(grpc.StatusCode.UNAVAILABLE, "m", retry_after_ms=1_250), 1.25),
        (b"", None),
        (b"\xff\xff", None),
        (b"\x1a\x00", None),
        (b"\x1a\x05abc", None),
    ],
)
def test_the_delay_a_server_asks_for_is_read_and_garbage_is_none(details: bytes, delay: float | None) -> None:
    assert retry_after_s(details) == delay


def test_a_window_rewinds_to_its_base_and_forgets_below_the_watermark() -> None:
    window = window_of(0, 1, 2, 3)
    for _ in range(3):
        window.send_next()
    window.answered()
    window.accept_below(1)

    assert (len(window), window.base, window.in_flight, window.next_size()) == (3, 1, 20, 10)
    window.rewind()
    assert (window.in_flight, window.awaits_answers) == (0, False)
    window.accept_below(3)
    assert (len(window), window.base, window.size, window.rows) == (1, 3, 10, 3)


def test_a_window_lets_go_of_a_refused_batch_only() -> None:
    window = window_of(0, 1)
    sent = window.send_next()
    refused = window.first_unanswered()
    window.rewind()

    assert refused is sent
    window.remove(sent)
    window.remove(sent)

    assert (len(window), window.base, window.size) == (1, 1, 10)
