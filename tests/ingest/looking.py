"""What the broker holds, looked at from outside with a client of its own."""

from typing import Any, cast

from rankscope_ingest.buffer import stream_key
from rankscope_proto.identity import SHARDS
from rankscope_proto.v1.batch_pb2 import Batch
from tests.ground.brokers import Broker


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
