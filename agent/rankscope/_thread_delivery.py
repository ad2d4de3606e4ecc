"""Sending from a thread of the training process, where a site forbids helper processes.

Promises: gRPC's channel is born in the sending thread, and never used in a forked child; the end of the process
waits for the gateway at most `GRACE_S`. What was not delivered by then stays in the spool for `rankscope drain`.
"""

import time
from pathlib import Path

from rankscope._claim import Claim
from rankscope._connection import Access, Connection, survived_fork
from rankscope._identity import Identity
from rankscope._settings import Settings
from rankscope.agent.adopt import Adopted, adopt
from rankscope.spool import SpoolError, SpoolHeldError

GRACE_S = 0.4
LOOK_S = 0.02
CLOSE_S = 0.2


class ThreadDelivery:
    """Sends this process's spool, and holds its rank.

    Args:
        settings: This process's.
        identity: Who records.
        endpoints: Gateways.
    """

    def __init__(self, settings: Settings, identity: Identity, *, endpoints: tuple[str, ...]) -> None:
        access = Access(
            key=settings.key,
            tls_ca=settings.tls_ca,
            tls_cert=settings.tls_cert,
            tls_key=settings.tls_key,
            insecure=settings.insecure,
        )
        self._connection = Connection(endpoints, access)
        self._claim = Claim(self._connection, identity)
        self._adopted: Adopted | None = None

    def settle(self) -> str:
        """Wait for the answer to the claim; "" when the rank is this process's.

        Raises:
            ConfigError: a living process holds the rank.
        """
        return self._claim.settle().failure

    def begin(self, folder: Path) -> str:
        """Send a spool from now on; one that somebody sends already is left to them."""
        try:
            self._adopted = adopt(folder, connect=lambda: self._connection)
        except SpoolHeldError:
            return ""
        except (OSError, SpoolError) as error:
            return f"nothing is sent from here ({error}); is something wrong with its disk?"
        return ""

    def close(self) -> None:
        """Give the rank up, and the gateway a moment for the last batches."""
        if self._adopted is not None:
            self._end(self._adopted)
        self._claim.close()
        self._connection.close()

    def _end(self, adopted: Adopted) -> None:
        adopted.wake()
        deadline = time.monotonic() + GRACE_S
        while not _is_removed(adopted) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        adopted.close(CLOSE_S)


class ForkedDelivery:
    """A child of a process that had used gRPC: its first call would hang, so nothing is sent from here."""

    def settle(self) -> str:
        """Say so."""
        return (
            "nothing is sent from here, since this process was forked from one that had used gRPC, which hangs then: "
            "start it with `spawn`, or use RANKSCOPE_AGENT=process"
        )

    def begin(self, folder: Path) -> str:
        """It waits there."""
        del folder
        return ""

    def close(self) -> None:
        """There is nothing to let go of."""


def thread_delivery(
    settings: Settings, identity: Identity, *, endpoints: tuple[str, ...]
) -> ThreadDelivery | ForkedDelivery:
    """Send from a thread, where that can be.

    Args:
        settings: This process's.
        identity: Who records.
        endpoints: Gateways.
    """
    return ThreadDelivery(settings, identity, endpoints=endpoints) if survived_fork() else ForkedDelivery()


def _is_removed(adopted: Adopted) -> bool:
    try:
        return adopted.finish()
    except (OSError, SpoolError):
        return False  # it stays, for whoever sends it later
