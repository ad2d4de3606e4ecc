"""Who sends what this process spools: the node's agent, a thread of this process, or nobody for now."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rankscope._agent_start import agent_environment, start_agent
from rankscope._attach import Attachment, connect
from rankscope._export import Obstacle, Upload
from rankscope._identity import Identity
from rankscope._settings import SETTINGS, Settings
from rankscope.errors import Unavailable
from rankscope_proto.names import ProcessRole

STARTED_S = 3.0
"""How long a worker waits for an agent that it had to start."""


class Delivery(Protocol):
    """What `init` asks of whoever sends."""

    @property
    def upload(self) -> Upload | None:
        """How far this process has sent; None: another process sends, and the spool says how far."""
        ...

    def settle(self) -> str:
        """Wait, within a bound, until it is known how sending stands.

        Returns:
            "" when batches arrive; else what stands in the way, for now.

        Raises:
            ConfigError: a living process holds the rank.
        """
        ...

    def begin(self, folder: Path) -> str:
        """Send what this process spools from now on, if that is not somebody else's task.

        Args:
            folder: The spool.

        Returns:
            Why that cannot be, or "": training goes on all the same, and whoever sends later finds the spool.
        """
        ...

    def close(self) -> None:
        """Let go of the rank, within a bound; what is in the spool stays."""
        ...


class NoDelivery:
    """Nobody sends from here: the spool is all there is, and whoever sends it says there how far they are."""

    upload: Upload | None = None

    def settle(self) -> str:
        """Nothing is known to stand in the way."""
        return ""

    def begin(self, folder: Path) -> str:
        """Nobody is told."""
        del folder
        return ""

    def close(self) -> None:
        """There is nothing to let go of."""


class NoGateway(NoDelivery):
    """This process would send, and does not know where to."""

    accepted = 0

    def __init__(self) -> None:
        self.upload = self

    def take_obstacle(self) -> Obstacle:
        """That nobody sends."""
        why = "no gateway is known: set RANKSCOPE_ENDPOINT to its host:port, or start one with `rankscope up`"
        return Obstacle(Unavailable(why), is_lasting=True)

    def wake(self) -> None:
        """Nobody looks."""


class AgentOnly:
    """The node's agent sends, and nobody holds a rank: it finds new spools by itself.

    A worker does not stay attached: some nodes have hundreds of them, and their trainers need the agent's places.

    Args:
        root: The folder of the node's spools.
        start: Starts an agent for the root; None: only one that lives is used.
    """

    upload = None

    def __init__(self, root: Path, start: Callable[[], None] | None) -> None:
        self._root = root
        self._start = start
        self._failure = ""
        self._thread = threading.Thread(target=self._see_to_it, name="rankscope-attach", daemon=True)
        self._thread.start()

    def settle(self) -> str:
        """Wait a moment, where an agent has to be started first."""
        self._thread.join(STARTED_S)
        return self._failure

    def begin(self, folder: Path) -> str:
        """Nobody is told."""
        del folder
        return ""

    def close(self) -> None:
        """There is nothing to let go of."""

    def _see_to_it(self) -> None:
        found = connect(self._root)
        if found is not None:
            found.close()
            return
        try:
            if self._start is not None:
                self._start()
        except (OSError, Unavailable) as error:
            self._failure = f"no agent answers in {self._root}: {error}"


def sends_itself(settings: Settings, endpoints: tuple[str, ...]) -> bool:
    """Whether this process will send its spool: then no agent is to be there first.

    Args:
        settings: This process's.
        endpoints: Gateways; empty: none is known.
    """
    return settings.sender == "thread" and bool(endpoints) and _survived_fork()


def _survived_fork() -> bool:
    from rankscope._connection import survived_fork  # not at the top, as below

    return survived_fork()


def deliver(settings: Settings, identity: Identity, *, endpoints: tuple[str, ...]) -> Delivery:
    """Have this process's spool, which is there already, sent as the settings say.

    Args:
        settings: This process's, with the root of its spools.
        identity: Who records.
        endpoints: Gateways; empty: none is known, and no agent is started for nothing.
    """
    if settings.sender == "none":
        return NoDelivery()
    if settings.sender == "thread" and not endpoints:
        return NoGateway()
    if settings.sender == "thread" and identity.process_role is ProcessRole.WORKER and not _survived_fork():
        return NoDelivery()  # the rank that it was forked from sends it (`_worker_spools`)
    if settings.sender == "thread":
        # Not at the top: gRPC is loaded in a trainer only where a site forbids helper processes.
        from rankscope._thread_delivery import thread_delivery

        return thread_delivery(settings, identity, endpoints=endpoints)
    start = _starting(settings) if endpoints else None
    if identity.process_role is ProcessRole.WORKER:
        return AgentOnly(settings.spool_root, start)
    return Attachment(settings.spool_root, identity, start=start)


def _starting(settings: Settings) -> Callable[[], None]:
    environ = agent_environment(os.environ, settings)
    # Keys lie beside the batches they belong to: one in the agent's environment would be tried for other runs' too.
    environ.pop(SETTINGS["key"].variable, None)
    return lambda: start_agent(settings.spool_root, environ)
