"""Identity that every process computes alike, with no message between them.

Test vectors are in `tests/proto/test_identity.py`; changing a line here breaks stored runs.
"""

import hashlib
from datetime import UTC, datetime, timedelta

SHARDS = 16
"""Number of shards of the broker's stream; fixed per deployment."""

_DAY_NS = 86_400 * 10**9


def step_trace_id(run_id: str, launch_id: bytes, step: int, /) -> tuple[int, int]:
    """The trace id of a training step, the same on all ranks.

    Args:
        run_id: The run.
        launch_id: 16 bytes.
        step: 0-based, below 2**63.

    Returns:
        Upper and lower half of the 128-bit id, each below 2**64.
    """
    text = run_id.encode() + b"\0" + launch_id + b"step\0" + step.to_bytes(8, "big", signed=True)
    digest = hashlib.blake2b(text, digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def shard_of(run_id: str, incarnation: bytes) -> int:
    """The stream shard (0-based, below `SHARDS`) that carries an incarnation's batches."""
    digest = hashlib.blake2b(run_id.encode() + b"\0" + incarnation, digest_size=8).digest()
    return int.from_bytes(digest, "big") % SHARDS


def payload_digest(payload: bytes) -> bytes:
    """The 16-byte digest of a sealed payload."""
    return hashlib.blake2b(payload, digest_size=16).digest()


def week_of(sealed_ns: int, *, now_ns: int) -> int:
    """The Monday of a sealing time, in days since 1970-01-01, clamped to [2000, now + 1 day]."""
    first = (datetime(2000, 1, 3, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(days=1)
    day = min(sealed_ns, now_ns + _DAY_NS) // _DAY_NS
    return max(first, day - (day + 3) % 7)


def uuid7(now_ns: int, entropy: bytes) -> bytes:
    """A UUIDv7 (RFC 9562) from a wall-clock time in ns and 10 random bytes: 16 bytes."""
    milliseconds = (now_ns // 1_000_000).to_bytes(6, "big")
    tail = bytearray(entropy)
    tail[0] = tail[0] & 0x0F | 0x70
    tail[2] = tail[2] & 0x3F | 0x80
    return milliseconds + bytes(tail)
