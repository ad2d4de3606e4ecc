"""The demo waits for its rows as long as some arrive, and says what is missing where none do."""

from typing import Any

import pytest

from rankscope.demo._findings import IncompleteError, missing_words, wait_until_visible
from rankscope.up import Client
from tests.ground.stacks import Stack


def process(rank: int, *, ended: bool = True, faults: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"rank": rank, "ended": ended, "faults": list(faults)}


def test_a_run_of_which_nothing_arrives_is_given_up_with_the_place_to_look(stack: Stack) -> None:
    with pytest.raises(IncompleteError, match="no row of it is there") as given_up:
        wait_until_visible(Client(stack.query), "demo-that-never-came", patience_s=0.1)

    assert "demo-that-never-came" in str(given_up.value)
    assert "up.log" in given_up.value.hint


def test_what_is_missing_is_named_rank_by_rank() -> None:
    answer = {
        "processes": [process(0), process(1, ended=False), process(2, faults=("2 batches are missing: seq 3..4",))]
    }

    assert missing_words(answer) == (
        "nothing came of rank 3; the last rows of rank 1 are missing; rank 2: 2 batches are missing: seq 3..4"
    )
