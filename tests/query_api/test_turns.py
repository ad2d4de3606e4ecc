"""Whose query gets the next handle: keys take turns, none holds more than its share, and no line is endless."""

import asyncio

import pytest

from rankscope_query_api.errors import BusyError
from rankscope_query_api.limits import THE_SERVICE, Asker
from rankscope_query_api.settings import Settings
from rankscope_query_api.turns import MOST_WAITING, Turns

FIRST, SECOND, THIRD = Asker("1"), Asker("2"), Asker("3")


def turns(*, handles: int, share: int = 64, timeout_s: float = 600) -> Turns:
    given = {"HANDLES": handles, "HANDLES_PER_KEY": share, "TIMEOUT_S": timeout_s}
    return Turns(Settings.from_environment({f"RANKSCOPE_QUERY_{name}": str(value) for name, value in given.items()}))


class Line:
    """Those who wait, and the order they were served in."""

    def __init__(self, of: Turns) -> None:
        self.served: list[str] = []
        self._turns = of
        self._waiting: list[asyncio.Task[None]] = []

    async def wait(self, *askers: Asker) -> list[asyncio.Task[None]]:
        """Lets them stand in line, in this order."""
        added = [asyncio.create_task(self._take(asker)) for asker in askers]
        self._waiting += added
        await asyncio.sleep(0)
        return added

    async def serve(self, asker: Asker) -> None:
        """Gives one handle of an asker back."""
        self._turns.give_back(asker)
        await asyncio.sleep(0)

    async def leave(self) -> None:
        """All who wait go away."""
        for one in self._waiting:
            one.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    async def _take(self, asker: Asker) -> None:
        await self._turns.take(asker)
        self.served.append(asker.key_id)


async def test_one_key_leaves_handles_for_the_others() -> None:
    of = turns(handles=4, share=3)
    line = Line(of)

    await line.wait(*[FIRST] * 10)
    await line.wait(SECOND)

    assert line.served == ["1", "1", "1", "2"]
    await line.leave()


async def test_without_keys_a_query_gets_any_handle_that_is_free() -> None:
    line = Line(turns(handles=4, share=1))

    await line.wait(*[THE_SERVICE] * 5)

    assert len(line.served) == 4
    await line.leave()


async def test_keys_take_turns_however_long_the_line_of_one_is() -> None:
    of = turns(handles=1)
    line = Line(of)
    await line.wait(*[FIRST] * 4, SECOND, THIRD, SECOND)

    for _ in range(6):
        await line.serve(Asker(line.served[-1]))

    assert line.served == ["1", "1", "2", "3", "1", "2", "1"]


async def test_who_goes_away_in_the_moment_of_its_turn_hands_it_on() -> None:
    of = turns(handles=1)
    line = Line(of)
    await line.wait(FIRST)
    (leaving,) = await line.wait(SECOND)
    await line.wait(THIRD)

    of.give_back(FIRST)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await asyncio.sleep(0)

    assert line.served == ["1", "3"]


async def test_who_goes_away_just_before_its_turn_takes_nobody_along() -> None:
    of = turns(handles=1)
    line = Line(of)
    await line.wait(FIRST)
    leaving, _ = await line.wait(SECOND, SECOND)

    leaving.cancel()
    of.give_back(FIRST)
    await asyncio.gather(leaving, return_exceptions=True)
    await asyncio.sleep(0)

    assert line.served == ["1", "2"]
    of.give_back(SECOND)
    await of.take(THIRD)


async def test_a_line_that_is_full_or_that_does_not_move_says_so_at_once_or_in_time() -> None:
    of = turns(handles=1, share=1, timeout_s=0.01)
    line = Line(of)
    await line.wait(*[FIRST] * (MOST_WAITING + 1))

    with pytest.raises(BusyError, match=f"the key 1 may hold 1 of the 1 handles .*, and {MOST_WAITING} queries wait"):
        await of.take(FIRST)
    with pytest.raises(BusyError, match=r"the key 2 may hold 1 of .*, and none came free in 0\.01 s") as raised:
        await of.take(SECOND)

    assert "RANKSCOPE_QUERY_HANDLES_PER_KEY" in (raised.value.hint or "")
    await line.leave()
    of.give_back(FIRST)
    await of.take(SECOND)


async def test_handles_that_come_free_when_all_in_line_have_gone_are_given_to_those_who_came_after() -> None:
    of = turns(handles=2)
    line = Line(of)
    await line.wait(SECOND, SECOND)
    (leaving,) = await line.wait(FIRST)

    come_after = asyncio.gather(of.take(FIRST), of.take(FIRST))
    leaving.cancel()
    for _ in range(2):
        of.give_back(SECOND)

    async with asyncio.timeout(60):
        await come_after
