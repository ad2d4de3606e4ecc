"""A busy port is replaced by the next free one."""

import socket
from collections.abc import Iterator

import pytest

from rankscope.up import UpError
from rankscope.up._ports import RESERVED, next_free


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_free_port_is_taken_as_wanted() -> None:
    wanted = next_free(0)

    assert next_free(wanted) == wanted


def test_the_next_free_port_follows_a_busy_one(busy: int) -> None:
    assert next_free(busy) > busy


def test_a_port_given_to_another_part_is_not_given_twice() -> None:
    first = next_free(0)

    assert next_free(first, taken={first}) > first


def test_a_search_never_lands_on_another_parts_usual_port() -> None:
    assert next_free(8469, taken={8469}) not in RESERVED


def test_where_no_port_is_free_the_options_are_named(busy: int) -> None:
    everything = range(busy, busy + 300)

    with pytest.raises(UpError, match=f"no free port from {busy} on") as refused:
        next_free(busy, taken=everything)

    assert "--query-port" in refused.value.hint
