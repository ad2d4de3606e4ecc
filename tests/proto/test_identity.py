"""Identity that every process computes alike: vectors that must never change, since stored runs hold them."""

import uuid

import pytest

from rankscope_proto.identity import SHARDS, payload_digest, shard_of, step_trace_id, uuid7, week_of
from tests.proto.batches import SEALED, WEEK

LAUNCH = bytes(range(16))
NOW = SEALED
DAY = 86_400 * 10**9


@pytest.mark.parametrize(
    ("run_id", "step", "expected"),
    [
        ("run-1", 0, "b3c22b52ae0144a5878a725807f6aa6c"),
        ("run-1", 1, "5443ce44c1d05ffb008b3cd3240598e8"),
        ("läufe", 2**63 - 1, "627150adab17d3354093dd5e6e77484d"),
    ],
)
def test_a_steps_trace_id_is_the_same_in_every_process(run_id: str, step: int, expected: str) -> None:
    high, low = step_trace_id(run_id, LAUNCH, step)

    assert f"{high:016x}{low:016x}" == expected


def test_steps_of_two_launches_have_different_traces() -> None:
    assert step_trace_id("run-1", LAUNCH, 0) != step_trace_id("run-1", bytes(16), 0)


@pytest.mark.parametrize(
    ("run_id", "incarnation", "shard"), [("run-1", bytes(16), 15), ("run-1", LAUNCH, 2), ("läufe", b"\xff" * 16, 0)]
)
def test_an_incarnation_stays_on_its_shard(run_id: str, incarnation: bytes, shard: int) -> None:
    assert shard_of(run_id, incarnation) == shard


def test_incarnations_spread_over_all_shards() -> None:
    shards = [shard_of("run-1", number.to_bytes(16, "big")) for number in range(1600)]

    assert set(shards) == set(range(SHARDS))
    assert max(map(shards.count, range(SHARDS))) < 200


def test_a_payloads_digest_is_blake2b_of_16_bytes() -> None:
    assert payload_digest(b"").hex() == "cae66941d9efbd404e4d88758ea67670"
    assert payload_digest(b"batch").hex() == "f191240f877efa34752a4dfc7379ca7d"


@pytest.mark.parametrize(
    ("sealed", "week"),
    [
        pytest.param(SEALED, WEEK, id="a Sunday belongs to the Monday before"),
        pytest.param(WEEK * DAY, WEEK, id="a Monday's first moment is its own week's"),
        pytest.param(WEEK * DAY - 1, WEEK - 7, id="the moment before is the week's before"),
        pytest.param(0, 10_959, id="a clock at 1970 is held at 2000"),
        pytest.param(-5, 10_959, id="a clock before 1970 is held at 2000"),
        pytest.param(10**19, WEEK + 7, id="a clock far ahead is held at tomorrow"),
        pytest.param(NOW + 30 * DAY, WEEK + 7, id="a clock a month ahead too"),
    ],
)
def test_the_week_is_the_monday_of_sealing_held_between_2000_and_tomorrow(sealed: int, week: int) -> None:
    assert week_of(sealed, now_ns=NOW) == week
    assert (week + 3) % 7 == 0


@pytest.mark.parametrize("entropy", [bytes(10), b"\xff" * 10])
def test_an_incarnation_is_a_uuid_of_version_7_with_its_time_in_front(entropy: bytes) -> None:
    made = uuid.UUID(bytes=uuid7(NOW, entropy))

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == NOW // 1_000_000


def test_later_incarnations_sort_later() -> None:
    assert uuid7(NOW, b"\xff" * 10) < uuid7(NOW + 1_000_000, bytes(10))
