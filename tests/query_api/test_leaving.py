"""Who closes the connection before the answer, or takes nothing of it: it ends, and others are answered."""

import json
import re
import socket
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import httpx
import pytest

from tests.ground.processes import wait_until
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api import story
from tests.query_api.conftest import serving
from tests.query_api.sql.cutting import COSTLY
from tests.query_api.sql.sending import rows

ENDLESS = COSTLY["timed_out"]
"""The services here let a query run for ten minutes: one that ends in a test's time was ended."""


def metric(address: str, name: str) -> float:
    """What the service counts under a name, labels and all; 0: nothing yet."""
    answer = httpx.get(f"{address}/metrics", timeout=60)
    found = re.search(rf"^{re.escape(name)} (\S+)$", answer.text, re.MULTILINE)
    return float(found[1]) if found else 0


def held(address: str) -> float:
    """Handles that a query holds now."""
    return metric(address, "rankscope_query_handles_held")


def asking(address: str, query: str) -> socket.socket:
    """A connection on which a statement was sent, and nothing was read."""
    parts = urlsplit(address)
    body = json.dumps({"query": query}).encode()
    opened = socket.create_connection((parts.hostname or "", parts.port or 0))
    head = (
        f"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    opened.sendall(f"{head}\r\n\r\n".encode() + body)
    return opened


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_query_whose_client_goes_away_ends_in_the_store_and_its_handle_is_clean(
    address: str, api: httpx.AsyncClient, how: str
) -> None:
    unheard = 'rankscope_query_requests_total{route="/api/v1/sql",status="499"}'
    before = metric(address, unheard)
    connection = asking(address, ENDLESS)
    wait_until(lambda: held(address) == 1, what="the query runs")

    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    wait_until(lambda: held(address) == 0, what="the query ends")

    assert await rows(api, "SELECT DISTINCT project, name FROM spans", project="other") == [
        {"project": "other", "name": "secret"}
    ]
    wait_until(lambda: metric(address, unheard) == before + 1, what="the request is counted")


@pytest.mark.clickhouse
def test_a_query_nobody_waits_for_ends_in_a_server_too(migrated: Store) -> None:
    insert(migrated.client, *story.batches())
    with serving(migrated, {"RANKSCOPE_QUERY_TIMEOUT_S": "600"}) as address:
        connection = asking(address, ENDLESS)
        wait_until(lambda: held(address) == 1, what="the query runs")

        connection.close()

        wait_until(lambda: held(address) == 0, what="the query ends")


async def test_clients_that_go_away_while_their_queries_wait_leave_the_line(embedded: str) -> None:
    # The service has one handle: the first runs, the others wait, and of them only the last one stays.
    connections = [asking(embedded, ENDLESS)]
    wait_until(lambda: held(embedded) == 1, what="the query runs")
    connections += [asking(embedded, ENDLESS) for _ in range(5)]

    async with httpx.AsyncClient(base_url=embedded, timeout=60) as api:
        for connection in connections:
            connection.close()

        assert await rows(api, "SELECT 1 AS one") == [{"one": 1}]
    wait_until(lambda: held(embedded) == 0, what="nothing runs any more")


LONG = "SELECT leftPad('x', 14000, 'x') AS text, arrayJoin(range(1000)) AS k"
"""Its 1,000 rows are 14 MB: more than a connection holds on its way. Few values: to write three million numbers took a
service in this process, whose lines are traced, most of half a minute."""

STORE = 'rankscope_query_store_seconds_count{outcome="ok"}'
ANSWERED = 'rankscope_query_requests_total{route="/api/v1/sql",status="200"}'


def taken_from(connection: socket.socket) -> tuple[int, int]:
    """Bytes that an answer was to have, and those that came until the connection ended."""
    with connection, connection.makefile("rb") as stream:
        head = b"".join(iter(stream.readline, b"\r\n")).decode()
        whole = int(re.findall(r"content-length: (\d+)", head)[0])
        return whole, sum(map(len, iter(lambda: stream.read1(2**20), b"")))


async def test_a_reader_that_takes_nothing_loses_its_answer_after_a_time(told: Store) -> None:
    with serving(told, {"RANKSCOPE_QUERY_SEND_TIMEOUT_S": "0.3"}) as address:
        connection = asking(address, LONG)

        wait_until(lambda: metric(address, ANSWERED) == 1, what="the request ends, and nobody has read")

        whole, taken = taken_from(connection)
        assert 0 < taken < whole


async def test_readers_that_take_nothing_make_room_for_others(told: Store) -> None:
    settings = {"RANKSCOPE_QUERY_SEND_TIMEOUT_S": "600", "RANKSCOPE_QUERY_MAX_ANSWERS_BYTES": str(2**20)}
    with serving(told, settings) as address, ExitStack() as readers:
        for _ in range(5):
            readers.enter_context(closing(asking(address, LONG)))
        async with httpx.AsyncClient(base_url=address, timeout=150) as api:
            wait_until(lambda: held(address) == 0 and metric(address, STORE) > 0, what="an answer waits for its reader")

            assert await rows(api, "SELECT 1 AS one") == [{"one": 1}]


async def test_a_long_answer_reaches_a_reader_that_takes_it(api: httpx.AsyncClient) -> None:
    answer = await api.post("/api/v1/sql", json={"query": LONG})

    assert answer.status_code == 200, answer.text
    assert [len(row["text"]) for row in answer.json()["items"]] == [14_000] * 1_000
