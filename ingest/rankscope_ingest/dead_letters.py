"""Batches that cannot go on: kept in the broker with their original bytes, until somebody looks.

A batch comes here when another payload was accepted under its seq, or when the store cannot parse
it. It promises to keep each batch once, within a bound that leaves the broker room for its streams;
a batch beyond the bound is not kept, which the caller counts and says.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self, cast

from pydantic import SecretStr

from rankscope_ingest import metrics
from rankscope_ingest.broker_keys import bytes_key, stream_key
from rankscope_ingest.connection import TIMEOUT_S, Connection
from rankscope_ingest.scripts import Script

logger = logging.getLogger(__name__)

LETTERS = "rankscope:dlq"
HELD = "{rankscope:dlq}:bytes"
MAX_BYTES = 256 * 2**20
SHARE_OF_MEMORY = 8
"""All letters together take at most one part in so many of the broker's memory, and MAX_BYTES."""
MARK_LIFETIME_S = 7 * 86_400
PAGE = 100


class Stage(StrEnum):
    """Where a batch stopped."""

    CONFLICT = "conflict"
    """Another payload was accepted under its seq."""
    PARSE = "parse"
    """The store cannot parse it."""


class Kept(StrEnum):
    """What became of a letter."""

    NEW = "kept"
    BEFORE = "kept_before"
    NO_ROOM = "no_room"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A batch that cannot go on.

    Attributes:
        payload: The sealed bytes; the receive time may be appended.
        incarnation: 16 bytes.
        seq: Number of the batch in its incarnation.
        digest: 16 bytes, of the sealed bytes.
        rows: Rows in all sections.
        week: Monday of the sealing time, days since 1970-01-01.
        expanded: Bytes that the rows take once each carries its own text; 0: about the payload's.
        shard: The stream it came by or would have gone to, 0-based.
        stage: Where it stopped.
        code: The store's error code; 0: none.
        detail: Why, for people.
        at_ms: When, ms since the epoch.
    """

    payload: bytes
    incarnation: bytes
    seq: int
    digest: bytes
    rows: int
    week: int
    expanded: int
    shard: int
    stage: Stage
    code: int
    detail: str
    at_ms: int

    @property
    def mark(self) -> str:
        """The key that says it is kept."""
        return f"{{rankscope:dlq}}:kept:{self.incarnation.hex()}:{self.seq}:{self.digest.hex()}"

    @classmethod
    def of(cls, found: Mapping[bytes, bytes]) -> Self:
        """The letter in a stream entry's fields."""
        return cls(
            payload=found[b"payload"],
            incarnation=found[b"incarnation"],
            seq=int(found[b"seq"]),
            digest=found[b"digest"],
            rows=int(found[b"rows"]),
            week=int(found[b"week"]),
            expanded=int(found[b"expanded"]),
            shard=int(found[b"shard"]),
            stage=Stage(found[b"stage"].decode()),
            code=int(found[b"code"]),
            detail=found[b"detail"].decode(errors="replace"),
            at_ms=int(found[b"at_ms"]),
        )


_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class DeadLetters:
    """The letters in a broker.

    Args:
        url: redis://, rediss:// or unix://.
    """

    def __init__(self, url: SecretStr) -> None:
        self._connection = Connection(url, read_timeout_s=TIMEOUT_S)
        self._keep = Script("keep_letter")
        self._drop = Script("drop_letter")
        self._replay = Script("replay_letter")
        self._bound: int | None = None

    async def close(self) -> None:
        """Closes every connection."""
        await self._connection.close()

    async def keep(self, letter: DeadLetter) -> Kept:
        """Keeps a batch, counts it and says it; safe to repeat.

        Raises:
            BrokerError, Busy: It may or may not be kept.
        """
        parts = [part for name, value in asdict(letter).items() for part in (name, value)]
        answer = await self._connection.run(
            self._keep, [LETTERS, HELD, letter.mark], await self._most_bytes(), MARK_LIFETIME_S, *parts
        )
        kept = {b"": Kept.NO_ROOM, b"kept": Kept.BEFORE}.get(cast("bytes", answer), Kept.NEW)
        if kept is not Kept.BEFORE:
            _say(letter, kept)
        return kept

    async def page(self, after: str = "-", *, count: int = PAGE) -> list[tuple[str, DeadLetter]]:
        """Letters with their ids, the oldest first.

        Args:
            after: Id behind which to go on; "-" from the start.
            count: Most letters.
        """
        start = after if after == "-" else f"({after}"
        answer = await self._connection.command("XRANGE", LETTERS, start, "+", "COUNT", count)
        found = cast("list[tuple[bytes, Mapping[bytes, bytes]]]", answer)
        return [(key.decode(), DeadLetter.of(values)) for key, values in found]

    async def find(self, letter_id: str) -> DeadLetter | None:
        """The letter of that id; None where there is none, as there is none of what can be no id."""
        if not _is_id(letter_id):
            return None
        answer = await self._connection.command("XRANGE", LETTERS, letter_id, letter_id)
        found = cast("list[tuple[bytes, Mapping[bytes, bytes]]]", answer)
        return DeadLetter.of(found[0][1]) if found else None

    async def drop(self, letter_id: str, letter: DeadLetter) -> bool:
        """Forgets a letter; whether it was there."""
        return await self._connection.run(self._drop, [LETTERS, HELD, letter.mark], letter_id) == 1

    async def replay(self, letter_id: str, letter: DeadLetter) -> bool:
        """Puts a letter into its stream again, to be looked for in the store first; whether it was there.

        Raises:
            Busy: The broker is full.
        """
        keys = [LETTERS, HELD, letter.mark, stream_key(letter.shard), bytes_key(letter.shard)]
        return await self._connection.run(self._replay, keys, letter_id) == 1

    async def held(self) -> tuple[int, int]:
        """Letters there are, and the bytes they take."""
        count = await self._connection.command("XLEN", LETTERS)
        size = await self._connection.command("GET", HELD)
        return cast("int", count), int(cast("bytes | None", size) or 0)

    async def _most_bytes(self) -> int:
        if self._bound is None:
            memory = int((await self._connection.info())["maxmemory"])
            self._bound = min(MAX_BYTES, memory // SHARE_OF_MEMORY) if memory else MAX_BYTES
        return self._bound


def _is_id(text: str) -> bool:
    """Whether a stream's entry can be called so: two numbers of 64 bits."""
    return bool(_ID.fullmatch(text)) and all(int(part) < 2**64 for part in text.split("-"))


def _say(letter: DeadLetter, kept: Kept) -> None:
    metrics.DEAD_LETTERS.labels(letter.stage.value, kept.value).inc()
    names = {"incarnation": letter.incarnation.hex(), "seq": letter.seq, "rows": letter.rows}
    if kept is Kept.NEW:
        logger.error("a batch was set aside (`rankscope dlq ls`): %s", letter.detail, extra=names)
    else:
        logger.error(
            "a batch was dropped, as the dead letters are full (`rankscope dlq discard` makes room): %s",
            letter.detail,
            extra=names,
        )
