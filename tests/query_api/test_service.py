"""The service as a part of a process: it starts, stops, and says why it cannot."""

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from rankscope_query_api.errors import ListenError
from rankscope_query_api.service import listening, serve
from rankscope_query_api.settings import Settings
from tests.ground.processes import ROOT, Child, answers, free_port, wait_until
from tests.ground.stores import Store


async def test_it_serves_until_it_is_told_to_stop(told: Store) -> None:
    port, stop = free_port(), asyncio.Event()
    settings = {"RANKSCOPE_CLICKHOUSE_URL": told.url, "RANKSCOPE_QUERY_LISTEN": f"127.0.0.1:{port}"}
    serving = asyncio.create_task(serve(settings, stop))
    await asyncio.to_thread(wait_until, lambda: answers(port), what="the service listens")

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as api:
        ready = await api.get("/readyz")
    stop.set()
    await serving

    assert ready.status_code == 200
    assert not answers(port)


async def test_a_busy_port_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(ListenError, match=f"cannot listen on {listen}.*RANKSCOPE_QUERY_LISTEN"):
            await serve({"RANKSCOPE_QUERY_LISTEN": listen}, asyncio.Event())


def test_no_packet_of_an_answer_waits_for_an_acknowledgement() -> None:
    settings = Settings.from_environment({"RANKSCOPE_QUERY_LISTEN": "127.0.0.1:0"})

    with listening(settings) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()

    with accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_stopping_waits_for_no_idle_client(told: Store) -> None:
    port, stop = free_port(), asyncio.Event()
    settings = {"RANKSCOPE_CLICKHOUSE_URL": told.url, "RANKSCOPE_QUERY_LISTEN": f"127.0.0.1:{port}"}
    serving = asyncio.create_task(serve(settings, stop))
    await asyncio.to_thread(wait_until, lambda: answers(port), what="the service listens")
    _, writer = await asyncio.open_connection("127.0.0.1", port)

    stop.set()
    await asyncio.wait_for(serving, timeout=30)

    writer.close()


COMMAND = [sys.executable, "-m", "rankscope", "query-service"]


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command's end, for a call that cannot work."""
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)


def test_the_command_serves_a_folder_and_ends_on_sigterm(tmp_path: Path) -> None:
    port, store = free_port(), tmp_path / "store"
    store.mkdir()
    command = [*COMMAND, "--clickhouse-url", f"chdb://{store}", "--log-format", "json"]
    child = Child([*command, "--listen", f"127.0.0.1:{port}"], name="query-service", folder=tmp_path)
    child.await_that(lambda: answers(port), what="listen")

    ready = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=30)
    child.stop()

    assert ready.status_code == 503
    assert "rankscope migrate" in ready.json()["hint"]
    assert f'"port": {port}' in child.output()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--log-format", "xml"), ("--listen", "nowhere"), ("--clickhouse-url", "ftp://store/db")),
        *(("--clickhouse-url", "http://u:p@127.0.0.1:abc/db"), ("--clickhouse-url", "http://u:p@[::1/db")),
        *(("--keys", "nowhere.json"), ("--tls-cert", "nowhere.pem"), ("--tls-key", "key.pem")),
        ("--listen", "10.0.0.1:1"),
    ],
)
def test_a_wrong_option_ends_with_2_and_names_it(option: str, value: str) -> None:
    done = called(option, value, "--json")

    error = json.loads(done.stderr)
    assert done.returncode == 2
    assert option in error["message"] or "RANKSCOPE_" in error["message"]
    assert "u:p" not in done.stderr


def test_a_busy_port_ends_the_command_with_1_and_one_json_document() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = called("--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--json")

    error = json.loads(done.stderr)
    assert done.returncode == 1
    assert list(error) == ["code", "message", "hint", "position", "expected"]
    assert error["code"] == "cannot_listen"
    assert "RANKSCOPE_QUERY_LISTEN" in error["hint"]
