"""The names of what lies in the broker.

Keys of one shard share a hash tag, so a cluster keeps them together and one script may touch them all.
"""

from urllib.parse import quote


def stream_key(shard: int) -> str:
    """The stream of a shard (0-based); keys of one shard share a hash tag, so a cluster keeps them together."""
    return f"rankscope:{{s{shard:02}}}:in"


def bytes_key(shard: int) -> str:
    """Payload bytes a shard holds."""
    return f"rankscope:{{s{shard:02}}}:bytes"


def state_key(shard: int, incarnation: bytes) -> str:
    """Where an incarnation stands: a hash of `accepted`, `durable` and its last digests."""
    return f"rankscope:{{s{shard:02}}}:incarnation:{incarnation.hex()}"


def claim_key(project: str, run_id: str, *, rank: int) -> str:  # the names say it
    """The claim of a rank; a ':' in a name cannot make two claims one."""
    return f"rankscope:claim:{quote(project, safe='')}:{quote(run_id, safe='')}:{rank}"
