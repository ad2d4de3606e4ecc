"""What a person sees on a terminal, and what a command does when its reader is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ground.stacks import clean_environ

WIDTH = 60
EVERY_SPAN = "exists(span.name)"


def on_a_terminal(*arguments: str, home: Path) -> list[str]:
    """The lines that a command draws on a terminal that is WIDTH columns wide."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "rankscope", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=clean_environ(RANKSCOPE_HOME=str(home), COLUMNS=str(WIDTH)),
    ):
        os.close(theirs)
        drawn = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return drawn.decode().splitlines()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how Linux says that nobody has the other end any more
        return b""


@pytest.mark.parametrize(
    "command",
    [("query", EVERY_SPAN, "--limit", "3"), ("tail", EVERY_SPAN, "-n", "3"), ("sql", "SELECT * FROM spans LIMIT 3")],
)
def test_a_table_is_no_wider_than_its_terminal_and_says_what_there_was_no_room_for(
    command: tuple[str, ...], served: str, tmp_path: Path
) -> None:
    lines = on_a_terminal(*command, "--url", served, home=tmp_path)

    remarks = [line for line in lines if line.startswith("no room for ")]
    rows = [line for line in lines if line not in remarks and "--after" not in line]
    assert len(rows) == 4
    assert max(map(len, rows)) <= WIDTH
    assert len(remarks) == 1


def test_following_ends_when_nobody_reads_even_where_no_row_comes(served: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "rankscope", "tail", EVERY_SPAN, "-f", "--every", "3600", "--url", served],
        stdout=subprocess.PIPE,
        env=clean_environ(RANKSCOPE_HOME=str(tmp_path)),
    ) as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()

        assert process.wait(timeout=60) == 1
