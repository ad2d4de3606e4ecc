"""`rankscope dlq`: what could not be stored is listed, shown, stored after a fix, or given up."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from rankscope import _discovery
from rankscope._discovery import Discovery
from rankscope.cli import main
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.dead_letters import DeadLetter, DeadLetters, Stage
from rankscope_proto.identity import shard_of
from rankscope_proto.v1.ingest_pb2 import Sealed
from tests.ground.brokers import Broker
from tests.ground.stores import Store
from tests.ingest.batches import Sender
from tests.ingest.looking import entries_in, is_drained
from tests.ingest.waiting import eventually
from tests.ingest.writing import counts, doubled, exactly, number, offer, running, send

Dlq = Callable[..., Any]


@pytest.fixture
def dlq(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Dlq:
    """Runs a command against the broker; gives its JSON document, or its exit status where it failed."""

    def run(*arguments: str) -> Any:
        status = main(["dlq", arguments[0], "--redis-url", broker.url, "--json", *arguments[1:]])
        answer = capsys.readouterr()
        return json.loads(answer.out) if status == 0 else (status, json.loads(answer.err or answer.out))

    return run


def keep(broker: Broker, *sealed: Sealed, stage: Stage = Stage.PARSE) -> None:
    """Puts batches among those that could not be stored."""

    async def keep_all() -> None:
        letters = DeadLetters(SecretStr(broker.url))
        for number_of, one in enumerate(sealed):
            await letters.keep(letter(one, stage=stage, at_ms=1_795_000_000_000 + number_of))
        await letters.close()

    asyncio.run(keep_all())


def letter(sealed: Sealed, *, stage: Stage, at_ms: int) -> DeadLetter:
    return DeadLetter(
        payload=sealed.payload,
        incarnation=sealed.incarnation,
        seq=sealed.seq,
        digest=sealed.digest,
        rows=sealed.rows,
        week=sealed.week,
        expanded=0,
        shard=shard_of("run", sealed.incarnation),
        stage=stage,
        code=131,
        detail="made up",
        at_ms=at_ms,
    )


def test_batches_are_listed_and_shown_with_their_bytes(broker: Broker, dlq: Dlq, tmp_path: Path) -> None:
    sender = Sender(rank=2)
    first, second = sender.next(), sender.next()
    keep(broker, first, second)

    listed = dlq("ls")["items"]
    shown = dlq("show", listed[1]["id"], "--payload", str(tmp_path / "batch.bin"))

    assert [(item["seq"], item["run"], item["rank"], item["code"]) for item in listed] == [
        (0, "run", 2, 131),
        (1, "run", 2, 131),
    ]
    assert listed[0]["at"] == "2026-11-18T11:06:40.000+00:00"
    assert shown["sections"]["tensor_stats"] == 3
    assert (tmp_path / "batch.bin").read_bytes() == second.payload


def test_the_broker_is_that_of_the_server_in_the_data_folder_unless_one_is_named(
    broker: Broker, dlq: Dlq, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKSCOPE_REDIS_URL", raising=False)
    keep(broker, Sender().next())
    server = Discovery("127.0.0.1:1", "http://127.0.0.1:1", os.getpid(), "ab", "0", broker=broker.url)
    _discovery.write(tmp_path, server)

    found = main(["dlq", "ls", "--home", str(tmp_path), "--json"])
    items = json.loads(capsys.readouterr().out)["items"]
    _discovery.write(tmp_path, replace(server, broker="redis://127.0.0.1:1/0"))
    named = dlq("ls", "--home", str(tmp_path))["items"]

    assert found == 0
    assert [item["seq"] for item in items] == [0]
    assert named == items


def test_what_is_discarded_is_gone_and_the_rest_stays(broker: Broker, dlq: Dlq) -> None:
    sender = Sender()
    keep(broker, sender.next(), sender.next())
    gone, stays = (item["id"] for item in dlq("ls")["items"])

    assert dlq("discard", gone) == {"discarded": [gone], "left": []}
    assert [item["id"] for item in dlq("ls")["items"]] == [stays]
    status, error = dlq("discard", gone)
    assert (status, error["code"]) == (1, "no_such_letter")
    assert dlq("discard", "--all") == {"discarded": [stays], "left": []}
    assert dlq("ls") == {"items": []}


def test_a_batch_in_conflict_is_not_replayed(broker: Broker, dlq: Dlq) -> None:
    keep(broker, Sender().next(), stage=Stage.CONFLICT)
    (item,) = dlq("ls")["items"]

    assert dlq("replay", "--all") == {"replayed": [], "left": [item["id"]]}
    assert dlq("replay", item["id"]) == (1, {"replayed": [], "left": [item["id"]]})
    assert [one["id"] for one in dlq("ls")["items"]] == [item["id"]]


@pytest.mark.parametrize("command", ["show", "replay", "discard"])
@pytest.mark.parametrize("letter_id", ["nope", "1", "1-0", f"{2**64}-0", "-", ""])
def test_what_is_no_id_is_no_batch(broker: Broker, dlq: Dlq, command: str, letter_id: str) -> None:
    keep(broker, Sender().next())

    status, error = dlq(command, "--", letter_id)

    assert (status, error["code"]) == (1, "no_such_letter")
    assert len(dlq("ls")["items"]) == 1


@pytest.mark.parametrize("arguments", [(), ("--all", "1-0")])
def test_what_to_act_on_is_said_in_one_way(broker: Broker, dlq: Dlq, arguments: tuple[str, ...]) -> None:
    status, error = dlq("replay", *arguments)

    assert (status, error["code"]) == (2, "config")
    assert "--all" in error["message"]


def test_a_replayed_batch_is_in_its_stream_and_no_longer_set_aside(broker: Broker, dlq: Dlq) -> None:
    sealed = Sender().next()
    keep(broker, sealed)

    replayed = dlq("replay", "--all")["replayed"]

    (entry,) = entries_in(broker, shard_of("run", sealed.incarnation))
    assert (entry[b"payload"], entry[b"again"]) == (sealed.payload, b"1")
    status, _ = dlq("replay", *replayed)
    assert status == 1
    assert dlq("ls") == {"items": []}


def test_what_was_set_aside_is_stored_once_after_a_fix(broker: Broker, dlq: Dlq, clickhouse_front: Store) -> None:
    sender = Sender()

    async def write(work: Callable[[Buffer], Coroutine[Any, Any, object]]) -> None:
        buffer = Buffer(SecretStr(broker.url))
        async with running(broker, clickhouse_front) as serving:
            await work(buffer)
            await eventually(lambda: is_drained(broker), watched=serving)
        await buffer.close()

    asyncio.run(write(lambda buffer: send(buffer, sender)))
    clickhouse_front.client.command("ALTER TABLE landing MODIFY COLUMN header_sdk_version FixedString(3)")
    clickhouse_front.client.command("ALTER TABLE landing_probe MODIFY COLUMN header_sdk_version FixedString(3)")
    asyncio.run(write(lambda buffer: send(buffer, sender)))
    lost = number(clickhouse_front, "SELECT sum(count) FROM gaps")
    clickhouse_front.client.command("ALTER TABLE landing MODIFY COLUMN header_sdk_version String")
    clickhouse_front.client.command("ALTER TABLE landing_probe MODIFY COLUMN header_sdk_version String")

    (item,) = dlq("ls")["items"]
    dlq("replay", item["id"])
    asyncio.run(write(lambda buffer: offer(buffer, sender.next())))

    assert lost == 6
    assert counts(clickhouse_front) == exactly(3)
    assert not doubled(clickhouse_front)
    assert number(clickhouse_front, "SELECT sum(count) FROM gaps") == 6
