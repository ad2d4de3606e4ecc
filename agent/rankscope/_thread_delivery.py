"""Sending from a thread of the training process: where a site forbids helper processes, or a call waits for the tier.

Promises: gRPC's channel is born in the sending thread, and never used in a forked child; the end of the process
waits for the gateway at most `GRACE_S` longer than it was asked to. What was not delivered by then stays in the
spool for `rankscope drain`.
"""

import time
from pathlib import Path

from rankscope._claim import Claim
from rankscope._connection import Access, Connection, Kind, survived_fork
from rankscope._export import Obstacle, Upload
from rankscope._identity import Identity
from rankscope._settings import Settings
from rankscope._worker_spools import ASK_S, CLOSE_S, WorkerSpools
from rankscope.agent.adopt import Adopted, adopt
from rankscope.errors import Rejected, Unavailable
from rankscope.spool import SpoolError, SpoolHeldError
from rankscope_proto.names import ProcessRole

GRACE_S = 0.4

_LASTING = (Kind.DENIED, Kind.OURS)
"""Failures that only a person ends: a key, a certificate, a setting."""

FORKED = (
    "nothing is sent from here, since this process was forked from one that had used gRPC, which hangs then: "
    "start it with `spawn`, or use RANKSCOPE_AGENT=process"
)


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
        # Who works for a rank does not hold it.
        is_rank = identity.process_role is not ProcessRole.WORKER
        self._claim = Claim(self._connection, identity) if is_rank else None
        self._root = settings.spool_root
        self._identity = identity
        self._workers: WorkerSpools | None = None
        self._adopted: Adopted | None = None
        self._fault: Obstacle | None = None

    @property
    def upload(self) -> Upload:
        """Itself."""
        return self

    @property
    def accepted(self) -> int:
        """Every seq below it is with the ingest tier, as far as this process has sent."""
        return 0 if self._adopted is None else self._adopted.sender.stand.accepted

    def take_obstacle(self) -> Obstacle | None:
        """What stands in the way now; a batch that was refused for good is told once."""
        if self._adopted is None:
            return self._fault
        sender = self._adopted.sender
        if sender.refusals:
            return Obstacle(Rejected(f"{sender.refusals.popleft()}; its rows are stated as lost"), is_lasting=True)
        fault = sender.fault
        return None if fault is None else Obstacle(fault.error, is_lasting=fault.kind in _LASTING)

    def wake(self) -> None:
        """Look for new batches now."""
        if self._adopted is not None:
            self._adopted.wake()

    def settle(self) -> str:
        """Wait for the answer to the claim; "" when the rank is this process's.

        Raises:
            ConfigError: a living process holds the rank.
        """
        return "" if self._claim is None else self._claim.settle().failure

    def begin(self, folder: Path) -> str:
        """Send a spool from now on; one that somebody sends already is left to them."""
        try:
            self._adopted = adopt(folder, connect=lambda: self._connection)
        except SpoolHeldError:
            return ""
        except (OSError, SpoolError) as error:
            failure = f"nothing is sent from here ({error}); is something wrong with its disk?"
            self._fault = Obstacle(Unavailable(failure), is_lasting=True)
            return failure
        if self._claim is not None:
            self._workers = WorkerSpools(self._root, self._identity, connect=lambda: self._connection)
        return ""

    def close(self) -> None:
        """Give the rank up, and the gateway a moment for the last batches."""
        deadline = time.monotonic() + GRACE_S
        if self._adopted is not None:
            self._end(self._adopted, deadline)
        if self._workers is not None:
            self._workers.close(deadline)
        if self._claim is not None:
            self._claim.close()
        self._connection.close()

    def _end(self, adopted: Adopted, deadline: float) -> None:
        adopted.wake()
        while not _is_removed(adopted) and time.monotonic() < deadline:
            time.sleep(ASK_S)
        adopted.close(CLOSE_S)


class ForkedDelivery:
    """A child of a process that had used gRPC: its first call would hang, so nothing is sent from here."""

    accepted = 0

    @property
    def upload(self) -> Upload:
        """Itself: it knows that nothing is sent."""
        return self

    def take_obstacle(self) -> Obstacle:
        """That it is so."""
        return Obstacle(Unavailable(FORKED), is_lasting=True)

    def wake(self) -> None:
        """Nobody looks."""

    def settle(self) -> str:
        """Say so."""
        return FORKED

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
