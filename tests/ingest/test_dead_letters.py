"""Batches that cannot go on: kept once, within a bound, listed, found and dropped."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from pydantic import SecretStr

from rankscope_ingest import dead_letters
from rankscope_ingest.dead_letters import HELD, LETTERS, DeadLetter, DeadLetters, Kept, Stage
from tests.ground.brokers import Broker


@pytest_asyncio.fixture
async def letters(broker: Broker) -> AsyncIterator[DeadLetters]:
    """The dead letters of a real broker of its own."""
    opened = DeadLetters(SecretStr(broker.url))
    yield opened
    await opened.close()


def letter(seq: int = 0, *, payload: bytes = b"\x00\xffpayload") -> DeadLetter:
    return DeadLetter(
        payload=payload,
        incarnation=b"i" * 16,
        seq=seq,
        digest=b"d" * 16,
        rows=6,
        week=20_000,
        expanded=70,
        shard=3,
        stage=Stage.PARSE,
        code=190,
        detail="sizes differ: é",
        at_ms=1_795_000_000_000,
    )


async def test_a_letter_comes_back_as_it_was_kept(letters: DeadLetters) -> None:
    await letters.keep(letter())

    [(key, listed)] = await letters.page()

    assert listed == letter()
    assert await letters.find(key) == letter()
    assert await letters.find("1-1") is None


async def test_the_same_batch_is_kept_once(letters: DeadLetters, caplog: pytest.LogCaptureFixture) -> None:
    kept = [await letters.keep(letter()) for _ in range(3)]

    assert kept == [Kept.NEW, Kept.BEFORE, Kept.BEFORE]
    assert (await letters.held())[0] == 1
    assert caplog.text.count("a batch was set aside (`rankscope dlq ls`): sizes differ") == 1


async def test_pages_go_on_behind_an_id(letters: DeadLetters) -> None:
    for seq in range(5):
        await letters.keep(letter(seq))

    first = await letters.page(count=3)
    second = await letters.page(first[-1][0], count=3)

    assert [found.seq for _, found in first + second] == [0, 1, 2, 3, 4]


async def test_a_letter_beyond_the_bound_is_counted_and_said_but_not_kept(
    letters: DeadLetters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_BYTES", 2_000)
    await letters.keep(letter(0, payload=b"x" * 1_500))

    kept = await letters.keep(letter(1, payload=b"x" * 1_500))
    small = await letters.keep(letter(2))

    assert (kept, small) == (Kept.NO_ROOM, Kept.NEW)
    assert "`rankscope dlq discard` makes room" in caplog.text


async def test_letters_take_a_part_of_the_broker_s_memory(letters: DeadLetters, broker: Broker) -> None:
    with broker.client() as client:
        client.config_set("maxmemory", str(8 * 2**20))

    kept = [await letters.keep(letter(seq, payload=b"x" * 700_000)) for seq in range(2)]

    assert kept == [Kept.NEW, Kept.NO_ROOM]


async def test_a_full_broker_still_keeps_a_letter_so_that_its_stream_can_drain(
    letters: DeadLetters, broker: Broker
) -> None:
    await letters.keep(letter(0))
    with broker.client() as client:
        client.config_set("maxmemory", "1")

    assert await letters.keep(letter(1)) is Kept.NEW


async def test_a_dropped_letter_gives_its_room_back_and_may_come_again(letters: DeadLetters, broker: Broker) -> None:
    await letters.keep(letter(0))
    before = await letters.held()
    await letters.keep(letter(1))
    [_, (key, second)] = await letters.page()

    dropped = [await letters.drop(key, second) for _ in range(2)]

    assert dropped == [True, False]
    assert await letters.held() == before
    assert await letters.keep(letter(1)) is Kept.NEW


async def test_the_last_letter_leaves_no_key(letters: DeadLetters, broker: Broker) -> None:
    await letters.keep(letter())
    [(key, only)] = await letters.page()

    await letters.drop(key, only)

    with broker.client() as client:
        assert not client.exists(LETTERS, HELD, only.mark)
