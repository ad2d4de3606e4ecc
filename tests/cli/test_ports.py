"""A busy port is replaced by the next free one, also between servers that start at the same time."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rankscope.up import UpError
from rankscope.up._ports import QUERY_PORT, RESERVED, PortClaims, any_free_port

CLAIMING = """
import sys
from rankscope.up._ports import PortClaims
with PortClaims() as claims:
    print(claims.take(int(sys.argv[1])), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def claims() -> Iterator[PortClaims]:
    with PortClaims() as own:
        yield own


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_free_port_is_taken_as_wanted(claims: PortClaims) -> None:
    wanted = any_free_port()

    assert claims.take(wanted) == wanted


def test_zero_takes_any_free_port(claims: PortClaims) -> None:
    assert claims.take(0) != claims.take(0)


def test_the_next_free_port_follows_a_busy_one(busy: int, claims: PortClaims) -> None:
    assert claims.take(busy) > busy


def test_a_port_that_another_server_is_about_to_use_is_not_taken(claims: PortClaims) -> None:
    wanted = any_free_port()
    other = subprocess.Popen(
        [sys.executable, "-c", CLAIMING, str(wanted)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout
    assert int(other.stdout.readline()) == wanted

    taken = claims.take(wanted)
    other.communicate()

    assert taken > wanted
    with PortClaims() as later:
        assert later.take(wanted) == wanted


def test_a_search_never_lands_on_another_parts_usual_port(claims: PortClaims) -> None:
    ports = {claims.take(QUERY_PORT) for _ in range(5)}

    assert not ports & (RESERVED - {QUERY_PORT})


def test_where_no_port_is_left_the_options_are_named(claims: PortClaims) -> None:
    last = claims.take(65535)  # above the ports that systems give out

    with pytest.raises(UpError, match=f"no free port from {last} on") as refused:
        claims.take(last)

    assert "--query-port" in refused.value.hint
