"""The demo waits for its rows as long as some arrive, and says what is missing where none do."""

import subprocess
import sys
from typing import Any

import pytest

from rankscope.demo._findings import IncompleteError, missing_words, wait_until_visible
from rankscope.up import Client
from tests.ground.stacks import Stack


def process(rank: int, *, ended: bool = True, faults: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"rank": rank, "ended": ended, "faults": list(faults)}


ENDED_BY_SIGNAL = """
import os, signal, sys
from rankscope.demo._demo import terminated_by_signal
try:
    with terminated_by_signal():
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        signal.sigtimedwait([], 10)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_demo_in_the_background_of_a_script_still_ends_by_signal(number: str) -> None:
    # What `make test &` in a script does to SIGINT, for all below it; nohup does it to SIGHUP.
    shell = f"trap '' INT HUP; exec '{sys.executable}' -c \"$0\" {number}"

    done = subprocess.run(["bash", "-c", shell, ENDED_BY_SIGNAL], check=False, capture_output=True, text=True)

    assert done.returncode == 130, done.stderr


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
