"""What must not be stored is refused by the field's name, and its neighbours are stored."""

import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import grpc
import pytest

from rankscope_proto.identity import payload_digest, uuid7, week_of
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed
from rankscope_proto.v1.ingest_pb2_grpc import IngestStub
from tests.ground.processes import wait_until
from tests.ground.stacks import Stack

MIB = 2**20
Spoil = Callable[[Batch], object]


@pytest.fixture
def push(stack: Stack) -> Iterator[Callable[[Sealed], Ack]]:
    """Sends a sealed batch to the stack's gateway."""
    options = [("grpc.max_send_message_length", 16 * MIB)]
    with grpc.insecure_channel(stack.gateway, options=options) as channel:
        stub = IngestStub(channel)
        yield lambda sealed: stub.Push(sealed, timeout=30)


def batch(run: str, incarnation: bytes, seq: int) -> Batch:
    """A good batch: two spans of step 0."""
    now = time.time_ns()
    made = Batch(strings=["", "work"])
    header = made.header
    header.schema_version, header.project, header.run_id, header.launch_id = 1, "default", run, bytes(16)
    header.incarnation, header.seq, header.process_role, header.world_size = incarnation, seq, 1, 2
    header.worker_index = header.parent_rank = -1
    header.sealed, header.week, header.emitted_spans = now, week_of(now, now_ns=now), 2 * (seq + 1)
    spans = made.spans
    spans.span_id.extend([2 * seq + 1, 2 * seq + 2])
    spans.trace_lo.extend([9, 9])
    spans.name.extend([1, 1])
    spans.start.extend([now, now])
    spans.duration.extend([5, 5])
    spans.step.extend([0, 0])
    return made


def sealed(made: Batch, *, payload: bytes | None = None) -> Sealed:
    """The batch as it is sent."""
    sent = made.SerializeToString() if payload is None else payload
    header = made.header
    return Sealed(
        payload=sent,
        incarnation=header.incarnation,
        seq=header.seq,
        digest=payload_digest(sent),
        rows=len(made.spans.span_id),
        week=header.week,
    )


def set_rank(made: Batch) -> None:
    made.header.rank = made.header.world_size


def shorten_launch(made: Batch) -> None:
    made.header.launch_id = b"short"


def share_one_attribute(size: int) -> Spoil:
    """20,000 spans with one attribute of that many bytes between them: small to send, 2 GB as rows of 100 kB.

    A batch like this stopped the writer, and with it everybody's data.
    """

    def spoil(made: Batch) -> None:
        count, now = 20_000, time.time_ns()
        del made.spans.span_id[:]
        made.strings.extend(["notes", "x" * size])
        spans = made.spans
        spans.span_id.extend(range(1, count + 1))
        for column, value in ((spans.trace_lo, 9), (spans.name, 1), (spans.start, now), (spans.duration, 5)):
            column[:] = [value] * count
        spans.step[:] = [0] * count
        spans.attribute_keys.extend([2] * count)
        spans.attribute_values.extend([3] * count)
        spans.attribute_n.extend([1] * count)

    return spoil


BAD: dict[str, tuple[str, Spoil]] = {
    "a rank outside the world": ("header.rank", set_rank),
    "a launch id of five bytes": ("header.launch_id", shorten_launch),
    "a column shorter than its section": ("spans.duration", lambda made: made.spans.duration.pop()),
    "an index outside the dictionary": ("spans.name", lambda made: made.spans.name.__setitem__(0, 7)),
    "a time before 2000": ("spans.start", lambda made: made.spans.start.__setitem__(1, 5)),
    "a batch over the limit": ("payload", lambda made: made.spans.inputs.extend(["x" * 3 * MIB] * 2)),
    "rows that share a text of 100 kB": ("spans.attribute_values", share_one_attribute(100_000)),
    "rows that share the longest text allowed": ("spans.attribute_values", share_one_attribute(32 * 1024)),
    "a seq that the broker cannot count": ("seq", lambda made: setattr(made.header, "seq", 2**53)),
}


@pytest.mark.parametrize(("field", "spoil"), BAD.values(), ids=BAD)
def test_a_bad_batch_is_refused_by_its_field_and_the_sender_goes_on(
    field: str, spoil: Spoil, stack: Stack, push: Callable[[Sealed], Ack]
) -> None:
    run, incarnation = f"bad-{uuid4().hex[:8]}", uuid7(time.time_ns(), uuid4().bytes[:10])
    push(sealed(batch(run, incarnation, 0)))
    bad = batch(run, incarnation, 1)
    spoil(bad)

    with pytest.raises(grpc.RpcError, match=field) as refused:
        push(sealed(bad))
    push(sealed(batch(run, incarnation, 1)))

    assert isinstance(refused.value, grpc.Call)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    wait_until(lambda: spans(stack, run) == 4, what="both good batches in the store")


def test_text_that_is_not_utf8_is_refused(stack: Stack, push: Callable[[Sealed], Ack]) -> None:
    made = batch("bad-text", uuid7(time.time_ns(), uuid4().bytes[:10]), 0)
    payload = made.SerializeToString().replace(b"work", b"w\xff\xfek")

    with pytest.raises(grpc.RpcError, match="UTF-8") as refused:
        push(sealed(made, payload=payload))

    assert isinstance(refused.value, grpc.Call)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def spans(stack: Stack, run: str) -> int:
    """Spans of the run in the store."""
    if run not in {item["run_id"] for item in stack.get("/runs?limit=1000")["items"]}:
        return 0
    return len(stack.tql('span.name == "work"', run=run))
