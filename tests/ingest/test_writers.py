"""Several writer processes over one broker and one store: ended, frozen, woken, and never a row lost or doubled."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope_ingest.broker_keys import WRITERS, begun_key, lease_key
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.clickhouse import Store as Sink
from rankscope_proto.identity import SHARDS
from tests.ground.brokers import Broker
from tests.ground.processes import Child, python
from tests.ground.stacks import clean_environ
from tests.ground.stores import Store
from tests.ingest.batches import Sender
from tests.ingest.looking import is_drained
from tests.ingest.waiting import eventually
from tests.ingest.writing import counts, doubled, exactly, send, settings_for

POINTS = (
    *("after_read", "before_manifest", "after_manifest", "during_insert"),
    *("after_insert", "after_commit", "after_forget"),
)
SHOWN = ("after_manifest", "after_insert")
"""Those of the default run; the fault suite kills at each."""


class Writers:
    """Writer processes.

    Args:
        broker: Between which
        store: and which they move.
        folder: Of their logs.
    """

    def __init__(self, broker: Broker, store: Store, folder: Path) -> None:
        self._broker = broker
        self._environ = clean_environ(**settings_for(broker, store, RANKSCOPE_MIGRATE="0"))
        self._folder = folder
        self._children: list[Child] = []

    def start(self, name: str, *, failpoint: str = "") -> Child:
        """Starts one; where `failpoint` is given it meets its end or freezes there."""
        environ = {**self._environ, **({"RANKSCOPE_FAILPOINT": f"writer.{failpoint}"} if failpoint else {})}
        child = Child(python("rankscope", "writer"), name=name, folder=self._folder, environ=environ)
        self._children.append(child)
        return child

    def living(self) -> int:
        """How many show themselves alive."""
        with self._broker.client() as client:
            return int(client.zcard(WRITERS))

    def holders(self) -> dict[bytes, int]:
        """Shards by who holds them."""
        found: dict[bytes, int] = {}
        with self._broker.client() as client:
            for shard in range(SHARDS):
                holder: bytes | None = client.hget(lease_key(shard), "id")  # pyright: ignore[reportAssignmentType]
                if holder is not None:
                    found[holder] = found.get(holder, 0) + 1
        return found

    def has_begun(self) -> bool:
        """Whether an insert is begun and not committed."""
        with self._broker.client() as client:
            return any(client.exists(begun_key(shard)) for shard in range(SHARDS))

    def stop(self) -> None:
        """Ends all."""
        for child in self._children:
            child.stop()


@pytest.fixture
def writers(broker: Broker, clickhouse_front: Store, tmp_path: Path, sink: Sink) -> Iterator[Writers]:
    """Writer processes over a migrated store."""
    started = Writers(broker, clickhouse_front, tmp_path)
    yield started
    started.stop()


def senders(count: int) -> list[Sender]:
    return [Sender(rank=rank) for rank in range(count)]


async def test_two_writers_share_the_work_and_one_goes_on_alone(
    buffer: Buffer, broker: Broker, clickhouse_front: Store, writers: Writers
) -> None:
    ranks = senders(12)
    first = writers.start("first")
    await eventually(lambda: len(writers.holders()) == 1)
    await send(buffer, *ranks)
    second = writers.start("second")
    await eventually(lambda: sorted(writers.holders().values()) == [SHARDS // 2, SHARDS // 2])
    await send(buffer, *ranks, count=2)
    await eventually(lambda: is_drained(broker))

    second.stop()
    first.signal(signal.SIGKILL)
    first.wait()
    writers.start("third")
    await send(buffer, *ranks)
    await eventually(lambda: is_drained(broker))

    assert second.returncode == 0, second.output()
    assert counts(clickhouse_front) == exactly(48)
    assert not doubled(clickhouse_front)


@pytest.mark.parametrize(
    "point", [point if point in SHOWN else pytest.param(point, marks=pytest.mark.slow) for point in POINTS]
)
async def test_a_writer_killed_at_a_point_loses_and_doubles_nothing(
    buffer: Buffer, broker: Broker, clickhouse_front: Store, writers: Writers, point: str
) -> None:
    ranks = senders(6)
    await send(buffer, *ranks, count=2)
    victim = writers.start("victim", failpoint=f"{point}:kill")
    await eventually(lambda: victim.returncode is not None)

    writers.start("successor")
    await send(buffer, *ranks)
    await eventually(lambda: is_drained(broker))

    assert victim.returncode == -signal.SIGKILL, victim.output()
    assert counts(clickhouse_front) == exactly(18)
    assert not doubled(clickhouse_front)


@pytest.mark.parametrize("point", ["after_manifest", pytest.param("after_insert", marks=pytest.mark.slow)])
async def test_a_writer_frozen_past_its_lease_wakes_to_nothing_of_its_own(
    buffer: Buffer, broker: Broker, clickhouse_front: Store, writers: Writers, point: str
) -> None:
    ranks = senders(6)
    await send(buffer, *ranks, count=2)
    frozen = writers.start("frozen", failpoint=f"{point}:stop@1")
    await eventually(writers.has_begun)
    writers.start("successor")
    await eventually(lambda: is_drained(broker))
    await send(buffer, *ranks)
    await eventually(lambda: is_drained(broker))

    frozen.signal(signal.SIGCONT)
    await eventually(lambda: sorted(writers.holders().values()) == [SHARDS // 2, SHARDS // 2])
    await send(buffer, *ranks)
    await eventually(lambda: is_drained(broker))

    assert frozen.returncode is None, frozen.output()
    assert counts(clickhouse_front) == exactly(24)
    assert not doubled(clickhouse_front)
