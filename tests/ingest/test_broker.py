"""The embedded broker: what it is set to, and that it never outlives its parent."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rankscope_ingest import broker
from rankscope_ingest.errors import BrokerUnavailable, CannotStart, ConfigError
from tests.ground.processes import Child, alive, descendants, wait_until
from tests.ingest.waiting import eventually


@pytest.fixture
def socket_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rsb-") as folder:
        yield Path(folder) / "broker.sock"


def settings(socket_path: Path, folder: Path) -> dict[str, str]:
    return {"RANKSCOPE_REDIS_URL": f"unix://{socket_path}", "RANKSCOPE_BROKER_FOLDER": str(folder)}


def answers(socket_path: Path) -> bool:
    try:
        with redis.Redis(unix_socket_path=str(socket_path), retry=Retry(NoBackoff(), 0)) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


async def test_it_keeps_its_data_refuses_to_evict_and_has_no_port(socket_path: Path, tmp_path: Path) -> None:
    stop = asyncio.Event()
    serving = asyncio.create_task(broker.serve(settings(socket_path, tmp_path / "broker"), stop))
    await eventually(lambda: answers(socket_path), watched=serving)

    with redis.Redis(unix_socket_path=str(socket_path), decode_responses=True) as client:
        found = {name: client.config_get(name)[name] for name in ("appendonly", "appendfsync", "port", "save")}
        policy = client.config_get("maxmemory-policy")["maxmemory-policy"]
    stop.set()
    await serving

    assert found == {"appendonly": "yes", "appendfsync": "everysec", "port": "0", "save": ""}
    assert policy == "noeviction"
    assert not list(socket_path.parent.iterdir())


async def test_what_it_held_is_there_after_a_restart(socket_path: Path, tmp_path: Path) -> None:
    for expected in (None, b"value"):
        stop = asyncio.Event()
        serving = asyncio.create_task(broker.serve(settings(socket_path, tmp_path), stop))
        await eventually(lambda: answers(socket_path), watched=serving)
        with redis.Redis(unix_socket_path=str(socket_path)) as client:
            assert client.get("key") == expected
            client.set("key", "value")
        stop.set()
        await serving


async def test_a_broker_that_ends_by_itself_is_reported_with_its_log(socket_path: Path, tmp_path: Path) -> None:
    serving = asyncio.create_task(broker.serve(settings(socket_path, tmp_path), asyncio.Event()))
    await eventually(lambda: answers(socket_path), watched=serving)

    with redis.Redis(unix_socket_path=str(socket_path)) as client:
        os.kill(client.info("server")["process_id"], signal.SIGKILL)

    with pytest.raises(BrokerUnavailable, match=r"ended by itself with status -9(.|\n)*broker\.log"):
        await serving


async def test_a_broken_file_is_reported_at_the_start(socket_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    (folder / "appendonly.aof.manifest").write_text("nonsense\n")

    with pytest.raises(BrokerUnavailable, match=r"(?i)manifest"):
        await broker.serve(settings(socket_path, tmp_path), asyncio.Event())


async def test_a_second_broker_on_the_same_socket_is_refused(socket_path: Path, tmp_path: Path) -> None:
    stop = asyncio.Event()
    serving = asyncio.create_task(broker.serve(settings(socket_path, tmp_path / "one"), stop))
    await eventually(lambda: answers(socket_path), watched=serving)

    with pytest.raises(CannotStart, match="another broker answers"):
        await broker.serve(settings(socket_path, tmp_path / "two"), asyncio.Event())
    stop.set()
    await serving


@pytest.mark.parametrize(
    ("url", "reason"),
    [("redis://127.0.0.1", "needs unix://"), (f"unix:///tmp/{'x' * 120}/broker.sock", "the system allows 107")],
)
async def test_a_url_that_cannot_be_a_socket_is_refused(url: str, reason: str, tmp_path: Path) -> None:
    unusable = {"RANKSCOPE_REDIS_URL": url, "RANKSCOPE_BROKER_FOLDER": str(tmp_path)}

    with pytest.raises(ConfigError, match=reason):
        await broker.serve(unusable, asyncio.Event())


PARENT = """
import asyncio, os
from rankscope_ingest import broker
asyncio.run(broker.serve(os.environ, asyncio.Event()))
"""


def test_it_ends_when_its_parent_is_killed(socket_path: Path, tmp_path: Path) -> None:
    environ = {**os.environ, **settings(socket_path, tmp_path / "broker")}
    parent = Child([sys.executable, "-c", PARENT], name="parent", folder=tmp_path, environ=environ)
    parent.await_that(lambda: answers(socket_path), what="broker answers")
    children = descendants(parent.pid)

    parent.signal(signal.SIGKILL)
    parent.wait()

    assert children
    wait_until(lambda: not any(alive(pid) for pid in children), what="the broker ends")


def test_a_program_on_the_path_comes_before_the_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = broker.find_program()
    program = tmp_path / "valkey-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert broker.find_program() == program
    assert bundled.name in {"valkey-server", "redis-server"}
