"""The names of what lies in the broker.

Keys of one shard share a hash tag. Leases and manifests span shards in one script, so the broker is one Redis or
Valkey, with replicas or without; Redis Cluster would refuse those scripts.
"""

from urllib.parse import quote


def stream_key(shard: int) -> str:
    """The stream of a shard (0-based)."""
    return f"rankscope:{{s{shard:02}}}:in"


def bytes_key(shard: int) -> str:
    """Payload bytes a shard holds."""
    return f"rankscope:{{s{shard:02}}}:bytes"


def state_key(shard: int, incarnation: bytes) -> str:
    """Where an incarnation stands: a hash of `accepted`, `durable` and its last digests."""
    return f"rankscope:{{s{shard:02}}}:incarnation:{incarnation.hex()}"


def lease_key(shard: int) -> str:
    """Who may read a shard and commit in it: a hash of `id`, `fence` and `shown`."""
    return f"rankscope:{{s{shard:02}}}:lease"


def handed_key(shard: int) -> str:
    """The mark that the last holder of a shard left nothing begun: what identified the broker's process then."""
    return f"rankscope:{{s{shard:02}}}:handed"


def begun_key(shard: int) -> str:
    """The insert begun with entries of a shard: writer's id and token."""
    return f"rankscope:{{s{shard:02}}}:begun"


def manifest_key(writer: str) -> str:
    """What a writer is inserting."""
    return f"rankscope:manifest:{writer}"


FENCE = "rankscope:fence"
"""Counts the takings of shards."""

WRITERS = "rankscope:writers"
"""The living writers, sorted by when they last showed themselves, in ms."""


def claim_key(project: str, run_id: str, *, rank: int) -> str:  # the names say it
    """The claim of a rank; a ':' in a name cannot make two claims one."""
    return f"rankscope:claim:{quote(project, safe='')}:{quote(run_id, safe='')}:{rank}"
