"""Whatever bytes come, a batch is taken or refused by name: no other exception, and no memory without bound."""

import json
import random
import subprocess
import sys
from collections.abc import Callable

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope_ingest.entries import varint
from rankscope_ingest.errors import Refused
from rankscope_ingest.validate import check
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed
from tests.ground.brokers import Broker
from tests.ground.processes import ROOT
from tests.ingest.batches import NOW, Sender, batch, seal, seal_bytes
from tests.ingest.calls import push, push_bytes, refused, retry_info
from tests.ingest.looking import batches_in

GOOD = batch().SerializeToString()
INT64 = st.integers(-(2**63), 2**63 - 1)


def is_taken(sealed: Sealed) -> bool:
    """Whether a batch passes; anything but a refusal by name fails the test."""
    try:
        check(sealed, now_ns=NOW)
    except Refused as refusal:
        return not (refusal.field and refusal.reason)
    return True


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good payload with some bytes flipped, cut, doubled or put in."""
    payload = bytearray(GOOD)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(payload) - 1))
        size = draw(st.integers(1, 12))
        match draw(st.sampled_from(["flip", "cut", "double", "put"])):
            case "flip":
                payload[at] ^= draw(st.integers(1, 255))
            case "cut" if len(payload) > size + 1:
                del payload[at : at + size]
            case "double":
                payload[at:at] = payload[at : at + size]
            case _:
                payload[at:at] = draw(st.binary(min_size=1, max_size=12))
    return bytes(payload)


@settings(max_examples=400, deadline=None)
@given(payload=mutated())
def test_a_payload_with_wrong_bytes_is_refused_by_name_or_is_a_batch(payload: bytes) -> None:
    if payload and is_taken(seal_bytes(payload, batch())):
        assert Batch.FromString(payload).SerializeToString()


@settings(max_examples=200, deadline=None)
@given(payload=st.binary(min_size=1, max_size=400))
def test_any_bytes_are_refused_by_name(payload: bytes) -> None:
    assert not is_taken(seal_bytes(payload, batch()))


def nested(depth: int) -> bytes:
    """Field 1 within field 1, and so on."""
    content = b"\x08\x01"
    for _ in range(depth):
        content = b"\x0a" + varint(len(content)) + content
    return content


HAND_MADE: dict[str, bytes] = {
    "a varint of 11 bytes": b"\x08" + b"\xff" * 10 + b"\x01",
    "a length of 2^31": b"\x0a" + varint(2**31),
    "a length of 2^63": b"\x0a" + varint(2**63),
    "a length beyond the end": b"\x0a\x7f",
    "field number 0": b"\x02\x00",
    "a group that is never closed": b"\x0b" * 60,
    "a wrong wire type for the header": b"\x08\x01",
    "messages nested 60 deep": nested(60),
    "messages nested 500 deep": nested(500),
    "a group nested 500 deep": b"\x0b" * 500 + b"\x0c" * 500,
    "nothing but zeros": bytes(1_000),
    "an unknown field of 1 MB": GOOD + b"\xfa\x7f" + varint(2**20) + bytes(2**20 - 1),
}


@pytest.mark.parametrize("payload", HAND_MADE.values(), ids=HAND_MADE)
def test_bytes_made_to_break_a_parser_are_refused_by_name(payload: bytes) -> None:
    assert not is_taken(seal_bytes(payload, batch()))


TIMES: list[Callable[[Batch, int], object]] = [
    lambda made, time: setattr(made.header, "sealed", time),
    lambda made, time: made.spans.start.__setitem__(0, time),
    lambda made, time: made.scalars.time.__setitem__(0, time),
    lambda made, time: made.tensor_stats.time.__setitem__(2, time),
]
EDGES = (-1, 0, 1, 2**63 - 1, -(2**63), NOW // 1_000, NOW // 10**9, NOW * 5, 946_684_799_999_999_999)


@settings(max_examples=200, deadline=None)
@given(time=INT64 | st.sampled_from(EDGES), place=st.sampled_from(TIMES))
def test_any_time_is_refused_by_name_or_leaves_the_batch_in_its_one_week(
    time: int, place: Callable[[Batch, int], object]
) -> None:
    message = batch()
    place(message, time)
    sealed = seal(message)

    if is_taken(sealed):
        assert sealed.week == batch().header.week


SPECIAL = [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1.7976931348623157e308]


def test_special_numbers_pass_with_their_bits() -> None:
    message = batch()
    message.scalars.name[:] = [5] * len(SPECIAL)
    message.scalars.time[:] = [NOW] * len(SPECIAL)
    message.scalars.value[:] = SPECIAL
    sealed = seal(message)

    assert is_taken(sealed)
    assert list(map(float.hex, Batch.FromString(sealed.payload).scalars.value)) == list(map(float.hex, SPECIAL))


@pytest.mark.parametrize(
    ("element", "refused_for"),
    [("\\x7a\\x00", "strings"), ("\\x7a\\x01a", "strings"), ("\\x12\\x02\\x0a\\x00", "payload")],
    ids=["empty strings", "short strings", "empty sections"],
)
def test_four_megabytes_of_small_parts_take_a_bounded_amount_of_memory(element: str, refused_for: str) -> None:
    # 4 MB of empty repeated messages took 217 MB in the parser; the declaration has none.
    program = f"""
import json, resource
from rankscope_ingest.errors import Refused
from rankscope_ingest.validate import check
from tests.ingest.batches import NOW, batch, seal_bytes
element = b"{element}"
sealed = seal_bytes(batch().SerializeToString() + element * (4_000_000 // len(element)), batch())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    check(sealed, now_ns=NOW)
    field = ""
except Refused as refusal:
    field = refusal.field
print(json.dumps([field, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)

    field, grown_kib = json.loads(done.stdout)
    assert field == refused_for
    assert grown_kib < 120 * 1_024


class TestOverTheWire:
    """The same against a running gateway, whose stream and neighbours go on."""

    async def test_requests_with_wrong_bytes_are_answered_and_good_ones_enter(
        self, channel: grpc.aio.Channel, broker: Broker
    ) -> None:
        rng, good = random.Random(11), Sender()
        codes: set[grpc.StatusCode] = set()
        for _ in range(60):
            request = bytearray(Sender().next().SerializeToString())
            request[rng.randrange(len(request))] ^= 1 << rng.randrange(8)
            try:
                await push_bytes(channel, bytes(request))
            except grpc.aio.AioRpcError as error:
                codes.add(error.code())
            assert (await push(channel, good.next())).outcome == Ack.OUTCOME_ACCEPTED

        assert codes == {grpc.StatusCode.INVALID_ARGUMENT}
        assert len([found for found in batches_in(broker) if found.header.incarnation == good.incarnation]) == 60

    async def test_a_message_of_many_zeros_made_small_is_refused_for_ever(self, channel: grpc.aio.Channel) -> None:
        sealed = Sender().next()
        sealed.payload = bytes(100 * 2**20)

        error = await refused(channel, sealed, compression=grpc.Compression.Gzip)

        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert retry_info(error) is None
        assert (await push(channel, Sender().next())).outcome == Ack.OUTCOME_ACCEPTED

    async def test_batches_out_of_order_all_enter_once_and_in_order(
        self, channel: grpc.aio.Channel, broker: Broker
    ) -> None:
        sender, rng = Sender(), random.Random(5)
        batches = [sender.next() for _ in range(50)]
        while True:
            rng.shuffle(batches)
            acks = [await push(channel, sealed) for sealed in batches]
            expected = {ack.expected for ack in acks if ack.outcome == Ack.OUTCOME_EXPECTED}
            assert expected <= set(range(50))
            if not expected:
                break

        assert [found.header.seq for found in batches_in(broker)] == list(range(50))
