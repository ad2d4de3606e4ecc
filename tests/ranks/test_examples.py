"""The examples find the faults that they put in: what they print has the rank and the step."""

import json
from typing import Any

import pytest

from tests.ranks.launches import Launch, Nursery


def said(nursery: Nursery, launch: Launch) -> tuple[dict[str, Any], str]:
    """What rank 0 says was put in, and all that was found."""
    launch.await_end()
    text = nursery.said(launch)
    line = next(line for line in text.splitlines() if line.startswith('{"injected"'))
    return json.loads(line)["injected"], text


def test_the_rank_that_left_out_an_update_is_the_one_whose_weights_differ(nursery: Nursery) -> None:
    injected, found = said(nursery, nursery.run("rankscope.examples.diverging_rank", "--steps", "24"))

    when = rows_of(found, ["step", "name", "agree"])
    who = {int(rank): value for rank, value in rows_of(found, ["rank", "l2"])}
    assert injected == {"rank": 3, "step": 17}
    assert [int(step) for step, *_ in when] == [18]
    assert sorted(who) == [0, 1, 2, 3]
    assert who[0] == who[1] == who[2] != who[3]


@pytest.mark.slow
def test_the_rank_whose_input_is_slow_holds_the_others_up_by_its_input(nursery: Nursery) -> None:
    injected, found = said(nursery, nursery.run("rankscope.examples.slow_input"))

    assert (injected["rank"], injected["every"], injected["cause"]) == (2, 5, "input")
    assert "straggler: 2, every 5 steps since step " in found
    assert ", by input: the others lose " in found


@pytest.mark.slow
def test_the_rank_that_left_out_a_collective_is_told_while_the_others_wait(nursery: Nursery) -> None:
    injected, found = said(nursery, nursery.run("rankscope.examples.skipped_collective"))

    assert injected == {"rank": 1, "step": 12, "op": "all_reduce"}
    assert "rank_missing: rank 1 did not come to all_reduce #31 of group 0" in found
    assert found.index("rank_missing") < found.index("30 s later")


def rows_of(text: str, columns: list[str]) -> list[list[str]]:
    """The rows of a table that a command printed."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.split() == columns)
    rows = [line.split() for line in lines[at + 1 :]]
    end = next((number for number, row in enumerate(rows) if len(row) != len(columns)), len(rows))
    return rows[:end]
