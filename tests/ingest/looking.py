"""What the broker holds, looked at from outside with a client of its own."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import redis

from rankscope_ingest.buffer import stream_key
from rankscope_proto.identity import SHARDS
from rankscope_proto.v1.batch_pb2 import Batch
from tests.ground.brokers import Broker
from tests.ground.processes import wait_until


def entries_in(broker: Broker, shard: int) -> list[dict[bytes, bytes]]:
    """Fields of every entry of a shard, in order."""
    with broker.client() as client:
        found: Any = client.xrange(stream_key(shard))
    return [fields for _, fields in found]


def batches_in(broker: Broker) -> list[Batch]:
    """Every batch the broker holds."""
    return [Batch.FromString(fields[b"payload"]) for shard in range(SHARDS) for fields in entries_in(broker, shard)]


def is_drained(broker: Broker) -> bool:
    """Whether no shard holds an entry."""
    with broker.client() as client:
        return all(client.xlen(stream_key(shard)) == 0 for shard in range(SHARDS))


def keys_without_expiry(broker: Broker) -> set[bytes]:
    """Keys that stay for ever."""
    with broker.client() as client:
        keys = cast("list[bytes]", client.keys())
        return {key for key in keys if client.ttl(key) < 0}


@contextmanager
def without_disk(broker: Broker) -> Generator[None]:
    """Inside the block the broker cannot write to its disk, and answers writes with MISCONF."""
    obstacle = broker.folder / "dump.rdb"  # a folder where its snapshot should go
    obstacle.mkdir()
    with broker.client() as client:
        client.config_set("save", "3600 1")
        client.bgsave()
        wait_until(lambda: _last_save(client) == "err", what="the snapshot to fail")
        yield
        client.config_set("save", "")
    obstacle.rmdir()


def _last_save(client: redis.Redis) -> str:
    facts = cast("dict[str, str]", client.info("persistence"))
    return facts["rdb_last_bgsave_status"]
