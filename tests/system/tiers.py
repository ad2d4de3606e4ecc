"""The production tiers as processes of their own, each killed and started again at will."""

import os
import signal
from pathlib import Path

from tests.ground.brokers import Broker
from tests.ground.processes import Child, answers, free_port, python
from tests.ground.stacks import clean_environ
from tests.ground.stores import Store


class Tiers:
    """A gateway and a writer between a broker and a store.

    Attributes:
        gateway: The gateway's address; the same after a restart.
    """

    def __init__(self, broker: Broker, store: Store, folder: Path) -> None:
        self._port = free_port()
        self.gateway = f"127.0.0.1:{self._port}"
        self._folder = folder
        self._environ = clean_environ(
            RANKSCOPE_REDIS_URL=broker.url,
            RANKSCOPE_CLICKHOUSE_URL=store.url,
            RANKSCOPE_GATEWAY_LISTEN=self.gateway,
            RANKSCOPE_MIGRATE="1",
        )
        self._running: dict[str, Child] = {}

    def start(self, name: str) -> None:
        """Starts `gateway` or `writer`."""
        child = Child(python("rankscope", name), name=name, folder=self._folder, environ=self._environ)
        self._running[name] = child
        if name == "gateway":
            child.await_that(lambda: answers(self._port), what="listen")

    def kill(self, name: str) -> None:
        """Ends it with SIGKILL."""
        child = self._running.pop(name)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()

    def restart_writer(self) -> None:
        """Kills the writer and starts another."""
        self.kill("writer")
        self.start("writer")

    def restart_gateway(self) -> None:
        """Kills the gateway and starts another on its port."""
        self.kill("gateway")
        self.start("gateway")

    def log(self, name: str) -> str:
        """What it said, over all its lives."""
        return (self._folder / f"{name}.log").read_text()

    def stop(self) -> None:
        """Ends all."""
        for name in ("gateway", "writer"):
            if name in self._running:
                self._running.pop(name).stop()
