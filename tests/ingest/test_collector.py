"""How entries become groups in time: enough rows, or the linger, whichever comes first."""

import asyncio
from dataclasses import replace

from rankscope_ingest.collector import Collector
from rankscope_ingest.entries import MAX_EXPANDED_BYTES, Entry, Group, Place

FOR_EVER_S = 3_600.0


def entries(count: int, *, rows: int = 10) -> list[Entry]:
    return [Entry(Place(0, f"{n}-0"), b"payload", b"i" * 16, n, b"d" * 16, rows) for n in range(count)]


def collector(*, linger_s: float, rows: int = 100, size: int = 10**6) -> Collector:
    return Collector(rows=rows, size=size, linger_s=linger_s)


async def within(group: "asyncio.Task[Group | None]") -> Group | None:
    return await asyncio.wait_for(group, 10)


async def test_a_group_with_enough_rows_does_not_linger() -> None:
    held = collector(linger_s=FOR_EVER_S)
    await held.add(entries(5))

    group = await asyncio.wait_for(held.next_group(), 10)

    assert group is not None
    assert group.rows == 50


async def test_a_small_group_goes_when_the_linger_has_passed() -> None:
    held = collector(linger_s=0.01)
    await held.add(entries(1))

    group = await asyncio.wait_for(held.next_group(), 10)

    assert group is not None
    assert group.rows == 10


async def test_entries_that_come_while_it_lingers_join_the_group() -> None:
    held = collector(linger_s=FOR_EVER_S)
    await held.add(entries(2))
    waiting = asyncio.create_task(held.next_group())
    await asyncio.wait({waiting}, timeout=0.05)
    was_waiting = not waiting.done()

    await held.add(entries(3))

    group = await within(waiting)
    assert was_waiting
    assert group is not None
    assert group.rows == 50


async def test_there_is_room_until_a_group_is_held() -> None:
    held = collector(linger_s=FOR_EVER_S)
    await held.add(entries(9))
    await asyncio.wait_for(held.room(), 10)
    await held.add(entries(1))

    waiting = asyncio.create_task(held.room())
    await asyncio.wait({waiting}, timeout=0.05)
    was_waiting = not waiting.done()
    await held.next_group()
    await asyncio.wait_for(waiting, 10)

    assert was_waiting


async def test_a_group_leaves_behind_what_exceeds_it() -> None:
    held = collector(linger_s=0.0)
    await held.add(entries(25))
    await held.close()

    rows: list[int] = []
    while (group := await held.next_group()) is not None:
        rows.append(group.rows)

    assert rows == [100, 100, 50]


async def test_a_group_whose_rows_are_large_does_not_linger() -> None:
    held = collector(linger_s=FOR_EVER_S)
    await held.add(replace(entry, expanded=MAX_EXPANDED_BYTES // 2) for entry in entries(3))

    group = await asyncio.wait_for(held.next_group(), 10)

    assert group is not None
    assert group.rows == 20


async def test_a_closed_collector_gives_out_what_it_holds_at_once() -> None:
    held = collector(linger_s=FOR_EVER_S)
    await held.add(entries(1))
    await held.close()

    first = await asyncio.wait_for(held.next_group(), 10)
    last = await asyncio.wait_for(held.next_group(), 10)

    assert first is not None
    assert last is None
    await asyncio.wait_for(held.room(), 10)


async def test_a_poke_lets_a_waiting_writer_go_with_an_empty_group() -> None:
    held = collector(linger_s=FOR_EVER_S)
    waiting = asyncio.create_task(held.next_group())
    await asyncio.wait({waiting}, timeout=0.05)
    was_waiting = not waiting.done()

    await held.poke()

    group = await within(waiting)
    assert was_waiting
    assert group == Group(())


async def test_what_is_held_of_a_shard_that_went_is_dropped() -> None:
    held = collector(linger_s=0.0)
    await held.add(entries(3))
    await held.add(replace(entry, place=Place(1, entry.place.id)) for entry in entries(2))

    dropped = (await held.drop(0), await held.drop(0))

    group = await asyncio.wait_for(held.next_group(), 10)
    assert dropped == (True, False)
    assert group is not None
    assert [entry.place.shard for entry in group.entries] == [1, 1]
    assert await asyncio.wait_for(_has_room(held), 10)


async def _has_room(held: Collector) -> bool:
    await held.room()
    return True


async def test_at_rest_an_entry_waits_for_nothing() -> None:
    held = collector(linger_s=0.3)
    await held.add(entries(1))
    await asyncio.wait_for(held.next_group(), 10)
    waiting = asyncio.create_task(held.next_group())
    await asyncio.wait({waiting}, timeout=0.35)

    await held.add(entries(1))

    done, _ = await asyncio.wait({waiting}, timeout=0.25)
    assert done
