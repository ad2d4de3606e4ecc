"""Who sends what this process spools: the node's agent, a thread of this process, or nobody for now."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rankscope._agent_start import agent_environment, start_agent
from rankscope._attach import Attachment
from rankscope._identity import Identity
from rankscope._settings import SETTINGS, Settings


class Delivery(Protocol):
    """What `init` asks of whoever sends."""

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
    """Nobody sends now: the spool is all there is."""

    def settle(self) -> str:
        """Nothing is known to stand in the way."""
        return ""

    def begin(self, folder: Path) -> str:
        """Nobody is told."""
        del folder
        return ""

    def close(self) -> None:
        """There is nothing to let go of."""


def sends_itself(settings: Settings, endpoints: tuple[str, ...]) -> bool:
    """Whether this process will send its spool: then no agent is to be there first.

    Args:
        settings: This process's.
        endpoints: Gateways; empty: none is known.
    """
    if settings.sender != "thread" or not endpoints:
        return False
    from rankscope._connection import survived_fork  # not at the top, as below

    return survived_fork()


def deliver(settings: Settings, identity: Identity, *, endpoints: tuple[str, ...]) -> Delivery:
    """Have this process's spool, which is there already, sent as the settings say.

    Args:
        settings: This process's, with the root of its spools.
        identity: Who records.
        endpoints: Gateways; empty: none is known, and no agent is started for nothing.
    """
    if settings.sender == "none" or (settings.sender == "thread" and not endpoints):
        return NoDelivery()
    if settings.sender == "thread":
        # Not at the top: gRPC is loaded in a trainer only where a site forbids helper processes.
        from rankscope._thread_delivery import thread_delivery

        return thread_delivery(settings, identity, endpoints=endpoints)
    start = _starting(settings) if endpoints else None
    return Attachment(settings.spool_root, identity, start=start)


def _starting(settings: Settings) -> Callable[[], None]:
    environ = agent_environment(os.environ, settings)
    # Keys lie beside the batches they belong to: one in the agent's environment would be tried for other runs' too.
    environ.pop(SETTINGS["key"].variable, None)
    return lambda: start_agent(settings.spool_root, environ)
