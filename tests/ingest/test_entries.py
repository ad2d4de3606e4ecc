"""Groups: their order, bodies and tokens follow from their entries alone."""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from rankscope_ingest.entries import MAX_ENTRIES, MAX_EXPANDED_BYTES, Entry, Group, Manifest, Place, take, varint
from rankscope_proto.v1.batch_pb2 import Batch


def entry(number: int, *, shard: int = 0, rows: int = 10, payload: bytes = b"payload") -> Entry:
    return Entry(Place(shard, f"{number}-0"), payload, b"i" * 16, number, number.to_bytes(16, "big"), rows)


def test_a_group_keeps_the_order_of_each_shard() -> None:
    read = [entry(1, shard=5), entry(2, shard=1), entry(3, shard=5), entry(4, shard=1)]

    group = take(read, rows=1_000, size=1_000)

    assert [(found.place.shard, found.seq) for found in group.entries] == [(1, 2), (1, 4), (5, 1), (5, 3)]
    assert list(group.by_shard()) == [1, 5]


def test_a_group_ends_at_the_row_limit() -> None:
    assert take([entry(n) for n in range(10)], rows=35, size=10**6).rows == 30


def test_a_group_ends_at_the_size_limit() -> None:
    assert len(take([entry(n) for n in range(10)], rows=10**6, size=22).entries) == 3


def test_a_group_ends_at_the_entry_limit() -> None:
    tiny = [entry(n, rows=1) for n in range(MAX_ENTRIES + 5)]

    assert len(take(tiny, rows=10**6, size=10**9).entries) == MAX_ENTRIES


def test_a_group_ends_where_its_rows_would_take_too_much_memory() -> None:
    # Given small payloads whose rows are large once each carries its own text.
    heavy = [replace(entry(n), expanded=MAX_EXPANDED_BYTES // 4) for n in range(10)]

    assert len(take(heavy, rows=10**6, size=10**9).entries) == 4


def test_an_entry_says_how_large_its_rows_are() -> None:
    fields = {b"payload": b"x" * 9, b"incarnation": b"i" * 16, b"seq": b"1", b"digest": b"d" * 16, b"rows": b"2"}

    from_an_older_gateway = Entry.of(Place(0, "1-0"), fields)
    grown = Entry.of(Place(0, "1-0"), {**fields, b"expanded": b"700"})

    assert (from_an_older_gateway.weight, grown.weight) == (9, 700)


def test_an_entry_above_every_limit_is_a_group_of_its_own() -> None:
    assert len(take([entry(1, rows=99), entry(2)], rows=10, size=1).entries) == 1


def test_the_token_follows_from_the_batches_and_their_order() -> None:
    one, two = entry(1), entry(2)

    assert Group((one, two)).token == Group((one, two)).token
    assert len({Group(entries).token for entries in ((one, two), (two, one), (one,), (two,))}) == 4


def test_the_same_batches_read_again_under_other_places_have_the_same_token() -> None:
    again = Entry(Place(9, "99-9"), b"payload", b"i" * 16, 1, (1).to_bytes(16, "big"), 10)

    assert Group((entry(1),)).token == Group((again,)).token


def test_a_manifest_tells_token_and_places() -> None:
    group = take([entry(1, shard=2), entry(2, shard=1)], rows=100, size=100)

    manifest = Manifest.parse(group.manifest({"async_insert": 0}))

    assert manifest.token == group.token
    assert list(manifest.places) == [Place(1, "2-0"), Place(2, "1-0")]


def test_the_body_is_each_payload_behind_its_length() -> None:
    payload = Batch(strings=["", "a" * 300]).SerializeToString()

    body = Group((entry(1, payload=payload), entry(2, payload=b""))).body()

    assert body == varint(len(payload)) + payload + b"\x00"


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_a_varint_reads_back(number: int) -> None:
    value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint(number)))

    assert value == number
    assert all(byte & 0x80 for byte in varint(number)[:-1])
