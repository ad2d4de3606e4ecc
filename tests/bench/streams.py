"""Many ranks at once: streams that send one batch a second each, and time its acknowledgement.

`python -m tests.bench.streams GATEWAY KEY FIRST COUNT SECONDS` runs COUNT ranks, the first of them FIRST, and prints
one JSON document: batches acknowledged, failures by name, and the waits in seconds.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import grpc.aio

from rankscope._clock import SystemClock
from rankscope._seal import Sealer
from rankscope_proto.identity import payload_digest
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed
from tests.bench.load import first_statistics, identity

ROWS = 300
"""About 16 KB of level-1 statistics."""
RANKS = 1_000


@dataclass(slots=True)
class Told:
    """What the streams of this process saw."""

    waits: list[float] = field(default_factory=list[float])
    failures: Counter[str] = field(default_factory=Counter[str])


class Rank:
    """One simulated rank."""

    def __init__(self, number: int) -> None:
        who = identity("many", number, ranks=RANKS)
        sealer = Sealer(who, clock=SystemClock())
        sealer.add(first_statistics(who, ROWS))
        first = sealer.seal()
        assert first is not None
        message = Batch.FromString(first.payload)
        self._header = message.header
        message.ClearField("header")
        self._body = message.SerializeToString()
        self._seq = 0

    def next(self) -> Sealed:
        """The next batch."""
        header = self._header
        header.seq, header.sealed = self._seq, time.time_ns()
        header.emitted_tensor_stats = (self._seq + 1) * ROWS
        payload = Batch(header=header).SerializeToString() + self._body
        self._seq += 1
        return Sealed(
            payload=payload,
            incarnation=header.incarnation,
            seq=header.seq,
            digest=payload_digest(payload),
            rows=ROWS,
            week=header.week,
        )


async def sent_each_second(rank: Rank, sent: dict[int, float], *, until: float) -> AsyncIterator[bytes]:
    """One batch a second, from a random moment on; notes when each was sent."""
    await asyncio.sleep(random.random())
    due = time.monotonic()
    while due < until:
        sealed = rank.next()
        sent[sealed.seq] = time.monotonic()
        yield sealed.SerializeToString()
        due += 1.0
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def stream(channel: grpc.aio.Channel, key: str, rank: Rank, *, told: Told, until: float) -> None:
    """One rank's stream."""
    sent: dict[int, float] = {}
    metadata = (("authorization", f"Bearer {key}"),)
    requests = sent_each_second(rank, sent, until=until)
    call: Any = cast("Any", channel).stream_stream("/rankscope.v1.Ingest/Stream")(requests, metadata=metadata)
    try:
        async for answer in call:
            ack = Ack.FromString(answer)
            if ack.outcome != Ack.OUTCOME_ACCEPTED:
                told.failures[Ack.Outcome.Name(ack.outcome)] += 1
                continue
            told.waits.append(time.monotonic() - sent.pop(ack.accepted - 1))
    except grpc.aio.AioRpcError as error:
        told.failures[f"{error.code().name}: {error.details()}"] += 1
    if sent:
        told.failures["unanswered"] += len(sent)


async def main(gateway: str, key: str, *, numbers: range, seconds: float) -> None:
    """Runs the ranks of those numbers and prints what they saw."""
    told, ranks = Told(), [Rank(number) for number in numbers]
    async with grpc.aio.insecure_channel(gateway) as channel:
        until = time.monotonic() + seconds
        await asyncio.gather(*(stream(channel, key, rank, told=told, until=until) for rank in ranks))
    print(json.dumps({"waits": told.waits, "failures": told.failures}))


if __name__ == "__main__":
    first, count = int(sys.argv[3]), int(sys.argv[4])
    asyncio.run(main(sys.argv[1], sys.argv[2], numbers=range(first, first + count), seconds=float(sys.argv[5])))
