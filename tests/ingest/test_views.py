"""Each view of `landing` broken in turn under a writer: what waits is stored once it is mended, and once only."""

import pytest

from rankscope_ingest import patience
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.clickhouse import TARGETS
from rankscope_ingest.clickhouse import Store as Sink
from tests.ground.brokers import Broker
from tests.ground.stores import Store
from tests.ingest.batches import Sender
from tests.ingest.looking import is_drained
from tests.ingest.waiting import eventually
from tests.ingest.writing import counts, doubled, exactly, full, number, offer, running, send


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats at once: the waits are shown elsewhere."""
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(patience, "LONGEST_WAIT_S", 0.1)


def definition(store: Store, view: str) -> str:
    found = store.client.query(
        "SELECT as_select FROM system.tables WHERE database = currentDatabase() AND name = {view:String}",
        parameters={"view": view},
    )
    return str(found.result_rows[0][0])


def throwing(query: str) -> str:
    """The view's query with a condition that no row survives."""
    return f"SELECT * FROM ({query}) WHERE throwIf(1, 'broken by a test') = 0"


async def test_each_view_that_throws_for_a_while_loses_and_doubles_nothing(
    buffer: Buffer, broker: Broker, sink: Sink, clickhouse_front: Store, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender()
    async with running(broker, clickhouse_front) as serving:
        for sent, target in enumerate(TARGETS, 1):
            view = f"{target}_from_landing"
            sound = definition(clickhouse_front, view)
            clickhouse_front.client.command(f"ALTER TABLE {view} MODIFY QUERY {throwing(sound)}")
            caplog.clear()
            await offer(buffer, full(sender))
            await eventually(lambda: "failure 2" in caplog.text, watched=serving)
            clickhouse_front.client.command(f"ALTER TABLE {view} MODIFY QUERY {sound}")
            await eventually(lambda: is_drained(broker), watched=serving)
            assert counts(clickhouse_front) == exactly(sent)

    assert not doubled(clickhouse_front)
    for table in ("modules", "events", "gaps", "runs", "open_spans", "batches"):
        assert number(clickhouse_front, f"SELECT count() FROM {table}") == len(TARGETS)


@pytest.mark.parametrize("target", ["spans", "batches"])
async def test_what_was_inserted_while_a_view_was_not_there_is_completed(
    buffer: Buffer, broker: Broker, sink: Sink, clickhouse_front: Store, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    view = f"{target}_from_landing"
    sound = definition(clickhouse_front, view)
    sender = Sender()
    async with running(broker, clickhouse_front) as serving:
        await send(buffer, sender)
        await eventually(lambda: is_drained(broker), watched=serving)
        clickhouse_front.client.command(f"DROP VIEW {view}")
        await send(buffer, sender)
        await eventually(lambda: f"the view {view} is missing" in caplog.text, watched=serving)
        assert not is_drained(broker)
        clickhouse_front.client.command(f"CREATE MATERIALIZED VIEW {view} TO {target} AS {sound}")
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(2)
    assert number(clickhouse_front, "SELECT count() FROM batches") == 2
    assert not doubled(clickhouse_front)


async def test_a_target_that_vanishes_for_a_while_is_waited_for(
    buffer: Buffer, broker: Broker, sink: Sink, clickhouse_front: Store, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender()
    async with running(broker, clickhouse_front) as serving:
        await send(buffer, sender)
        await eventually(lambda: is_drained(broker), watched=serving)
        clickhouse_front.client.command("RENAME TABLE scalars TO scalars_away")
        await send(buffer, sender, count=2)
        await eventually(lambda: "failure 2" in caplog.text, watched=serving)
        clickhouse_front.client.command("RENAME TABLE scalars_away TO scalars")
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(3)
    assert not doubled(clickhouse_front)
