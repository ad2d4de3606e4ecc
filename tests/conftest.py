"""Brings the fixtures of the test ground to every test, and the files that take longest to the front."""

import signal
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

pytest_plugins = ["tests.ground.fixtures"]

LONGEST = ("system", "cli", "agent/agent", "ingest")
"""Folders whose files begin first. Workers take a file at a time: one that takes minutes and is taken last leaves the
others without work, and a worker that comes back to `system` makes its site again."""

TRACED_CASES = 4
"""Of each parametrised test so many cases count for the coverage, and of property tests none: tracing every line
doubles what they cost (`tests/tql`: 14.4 s of CPU time without, 31.8 s with), and the rest walk where these walked."""


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so, and every process that a test starts would be deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the folders that take longest first, inside a folder in random order; let the repetitions run untraced."""
    items.sort(key=_turn)
    for item in _repetitions(items):
        item.add_marker(pytest.mark.no_cover)


def _turn(item: pytest.Item) -> int:
    folder = item.path.parent.relative_to(Path(__file__).parent).as_posix()
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)


def _repetitions(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of parametrised tests but for a few, the same in every order, and the property tests."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    spread = (sorted(of_one, key=lambda item: crc32(item.nodeid.encode())) for of_one in cases.values())
    return [
        item
        for of_one in spread
        for turn, item in enumerate(of_one)
        if turn >= TRACED_CASES or hasattr(getattr(item, "obj", None), "hypothesis")
    ]
