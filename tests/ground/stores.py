"""Stores that speak ClickHouse's HTTP interface: chDB behind the front, or a real server.

RANKSCOPE_TEST_CLICKHOUSE_URL names the server, for example http://default:@127.0.0.1:8123.
Every store is a database of its own, dropped at the end.
"""

import os
import signal
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from tests.ground.processes import Child, answers, free_port, python

SERVER = "RANKSCOPE_TEST_CLICKHOUSE_URL"


class FrontProcess:
    """The front in a process of its own, which can be killed and started again over its folder.

    Args:
        folder: Where chDB keeps its data.
        port: Where it listens; 0: any free port.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.port = port or free_port()
        self.url = f"http://default:@127.0.0.1:{self.port}"
        self._folder = folder
        self._child = self._started()
        self.await_ready()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether it lives, listening or about to."""
        return self._child.returncode is None

    def await_ready(self) -> None:
        """Returns when it listens."""
        self._child.await_that(lambda: answers(self.port), what="listen")

    def start(self) -> None:
        """Starts it again; does not wait."""
        self._child = self._started()

    def kill(self) -> None:
        """Ends it with SIGKILL, as a crash of the database would."""
        os.kill(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def answer_inserts(self, code: int, *, times: int, is_after: bool = False) -> None:
        """Lets the next inserts into landing fail with one of ClickHouse's codes.

        Args:
            code: Such as 252, too many parts; 0: nothing fails any more.
            times: How many fail.
            is_after: The insert is done before the error is answered.
        """
        query = f"code={code}&times={times}&after={int(is_after)}"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/fault?{query}", method="POST", data=b"")
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - http and loopback, fixed above
            answer.read()

    def stop(self) -> None:
        """Ends it."""
        self._child.stop()

    def _started(self) -> Child:
        return Child(python("tests.ground.front", self._folder, str(self.port)), name="front", folder=self._folder)


class Store:
    """One database of its own behind the HTTP interface.

    Attributes:
        url: What goes into RANKSCOPE_CLICKHOUSE_URL.
        client: A client without a session, so that threads may share it.
    """

    def __init__(self, server_url: str) -> None:
        self._name = f"t_{uuid4().hex[:12]}"
        self._server = _client(server_url)
        self._server.command(f"CREATE DATABASE {self._name}")
        self.url = f"{server_url.rstrip('/')}/{self._name}"
        self.client = _client(self.url)

    def drop(self) -> None:
        """Removes the database with all it holds."""
        self.client.close()
        self._server.command(f"DROP DATABASE {self._name}")
        self._server.close()


def _client(url: str) -> Client:
    parts = urlsplit(url)
    return clickhouse_connect.get_client(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 8123,
        username=parts.username or "default",
        password=parts.password or "",
        database=parts.path.strip("/") or "default",
        autogenerate_session_id=False,
    )


def server_url() -> str | None:
    """The real server to test against, where one is named."""
    return os.environ.get(SERVER)
