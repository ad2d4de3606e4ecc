"""An agent whose every answer a test can choose, on a real Unix socket."""

import json
import os
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from rankscope._host import process_start
from tests.ground.agents import end_agent

GRANTED: dict[str, object] = {"claim": "granted", "holder": None, "failure": ""}


class ScriptedAgent:
    """Grants every claim, except where a test said otherwise.

    Args:
        root: The folder of spools that it serves.

    Attributes:
        requests: What came, in order.
        answers: Answers to the next requests, one each; None: silence.
        left: How many connections ended.
    """

    def __init__(self, root: Path) -> None:
        self.requests: list[dict[str, object]] = []
        self.answers: deque[dict[str, object] | None] = deque()
        self.left = 0
        self._root = root
        self._folder = tempfile.TemporaryDirectory(prefix="rs")
        self._path = Path(self._folder.name) / "a"
        self._connections: list[socket.socket] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self._path))
        self._socket.listen()
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()
        root.mkdir(parents=True, exist_ok=True)
        said = {"pid": os.getpid(), "process_start": process_start(os.getpid()), "socket": str(self._path)}
        (root / "agent.json").write_text(json.dumps({**said, "version": "0"}))

    def say(self, answer: dict[str, object]) -> None:
        """Say something to everybody who is connected."""
        for connection in self._connections:
            connection.sendall(json.dumps(answer).encode() + b"\n")

    def drop(self) -> None:
        """End the connections, as an agent that dies."""
        for connection in self._connections:
            with suppress(OSError):  # the other side left
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()

    def stop(self) -> None:
        """End everything."""
        (self._root / "agent.json").unlink(missing_ok=True)
        self._socket.shutdown(socket.SHUT_RDWR)
        self.drop()
        for thread in self._threads:
            thread.join(10)
        self._socket.close()
        self._folder.cleanup()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._attend, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                self.requests.append(cast("dict[str, object]", json.loads(line)))
                answer = self.answers.popleft() if self.answers else GRANTED
                if answer is not None:
                    connection.sendall(json.dumps(answer).encode() + b"\n")
        self.left += 1


@contextmanager
def agents_ended(root: Path) -> Generator[None]:
    """Ends whatever agent serves the root behind the test."""
    try:
        yield
    finally:
        end_agent(root)
