"""Brings the fixtures of the test ground to every test, and the files that take longest to the front."""

import signal
from pathlib import Path

import pytest

pytest_plugins = ["tests.ground.fixtures"]

LONGEST = ("system", "cli", "agent/agent", "ingest")
"""Folders whose files begin first. Workers take a file at a time: one that takes minutes and is taken last leaves the
others without work, and a worker that comes back to `system` makes its site again."""


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so, and every process that a test starts would be deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the folders that take longest first; inside a folder the order stays random."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    folder = item.path.parent.relative_to(Path(__file__).parent).as_posix()
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)
