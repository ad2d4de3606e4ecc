"""Runs whose ranks meet in collectives, by when each rank really comes: clocks may say something else.

A step takes 200 ms: input (10 ms), forward (20 ms), then two all-reduces with 10 ms of backward between, the optimizer
(2 ms). What a rank is late by is added to its input; nobody leaves a collective before the last one has come.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rankscope_proto.names import SPAN_FLAGS, Phase, ProcessRole, SpanKind, SpanStatus
from rankscope_proto.v1 import batch_pb2 as pb
from tests.query_api.batches import MS, START, Row, Writer

STEP_NS = 200 * MS
INPUT_NS, FORWARD_NS, BACKWARD_NS, OPTIMIZER_NS, TRANSFER_NS = 10 * MS, 20 * MS, 10 * MS, 2 * MS, MS
CLOCK_ERROR_NS = MS // 2


def nobody(rank: int, step: int) -> int:
    """Nobody is late."""
    del rank, step
    return 0


def unchanged(rank: int, row: dict[str, Any]) -> dict[str, Any] | None:
    """The row as it is."""
    del rank
    return row


@dataclass(frozen=True, slots=True)
class Told:
    """A launch to be written.

    Attributes:
        run: The run.
        late_ns: What a rank's input takes longer at a step.
        ranks: How many there are.
        steps: How many there are.
        ahead_ns: What the clocks of ranks are ahead of the true time; each rank has a node of its own then.
        is_measured: Whether an agent has measured the clocks.
        launch: 16 bytes.
        change: Changes or drops (None) the row of a collective.
    """

    run: str
    late_ns: Callable[[int, int], int] = nobody
    ranks: int = 4
    steps: int = 40
    ahead_ns: Mapping[int, int] = field(default_factory=dict[int, int])
    is_measured: bool = True
    launch: bytes = b"L" * 16
    change: Callable[[int, dict[str, Any]], dict[str, Any] | None] = unchanged

    def writers(self) -> dict[int, Writer]:
        """The trainers, by rank."""
        return {rank: Writer(self.run, rank, launch=self.launch, world_size=self.ranks) for rank in range(self.ranks)}

    def batches(self) -> Iterator[pb.Batch]:
        """All of it: a batch a rank, and one of the agent."""
        writers = self.writers()
        for rank, writer in writers.items():
            sealed = START + self.steps * STEP_NS + 60_000 * MS
            yield writer.seal(sealed_ns=sealed, collectives=self.collectives(rank), spans=self.spans(rank))
        if self.is_measured:
            agent = Writer(self.run, -1, launch=self.launch, role=ProcessRole.AGENT)
            yield agent.seal(clocks=[_clock(writer, self.ahead_ns.get(rank, 0)) for rank, writer in writers.items()])

    def collectives(self, rank: int) -> list[Row]:
        """One rank's rows."""
        rows = [row for step in range(self.steps) for row in self._of_step(rank, step)]
        changed = [self.change(rank, row) for row in rows]
        return [row for row in changed if row is not None]

    def spans(self, rank: int) -> list[Row]:
        """One rank's phases."""
        return [row for step in range(self.steps) for row in self._phases(rank, step)]

    def _arrives(self, rank: int, step: int) -> int:
        return START + step * STEP_NS + INPUT_NS + FORWARD_NS + self.late_ns(rank, step)

    def _of_step(self, rank: int, step: int) -> Iterator[dict[str, Any]]:
        last = max(self._arrives(other, step) for other in range(self.ranks))
        times = [(self._arrives(rank, step), last + TRANSFER_NS)]
        again = last + TRANSFER_NS + BACKWARD_NS
        times.append((again + rank * 1000, again + self.ranks * 1000 + TRANSFER_NS))
        for place, (entry, left) in enumerate(times):
            yield {
                "group": "0",
                "group_ranks": f"0-{self.ranks - 1}",
                "cseq": 2 * step + place + 1,
                "op": "all_reduce",
                "entry": entry + self.ahead_ns.get(rank, 0),
                "exit": left + self.ahead_ns.get(rank, 0),
                "entry_source": "call",
                "exit_source": "call",
                "bytes": 4096,
                "shape": "1024",
                "dtype": "float32",
                "reduction": "sum",
                "step": step,
            }

    def _phases(self, rank: int, step: int) -> Iterator[Row]:
        begin = START + step * STEP_NS + self.ahead_ns.get(rank, 0)
        late = self.late_ns(rank, step)
        end = max(self._arrives(other, step) for other in range(self.ranks)) + self.ahead_ns.get(rank, 0)
        times = (
            (Phase.INPUT, begin, INPUT_NS + late),
            (Phase.FORWARD, begin + INPUT_NS + late, FORWARD_NS),
            (Phase.BACKWARD, begin + INPUT_NS + late + FORWARD_NS, 0),
            (Phase.OPTIMIZER, end + 2 * TRANSFER_NS + BACKWARD_NS + MS, OPTIMIZER_NS),
        )
        for place, (phase, start, duration) in enumerate(times):
            yield {
                "trace_hi": 1,
                "trace_lo": step + 1,
                "span_id": (rank + 1 << 40) + (step << 8) + place + 2,
                "name": phase.value,
                "path": f"step/{phase.value}",
                "kind": SpanKind.SYSTEM.code,
                "status": SpanStatus.OK.code,
                "phase": phase.code,
                "start": start,
                "duration": duration,
                "step": step,
                "flags": SPAN_FLAGS["in_step_trace"],
            }


def _clock(writer: Writer, ahead_ns: int) -> Row:
    of = writer.incarnation
    return {
        "of_hi": int.from_bytes(of[:8], "big"),
        "of_lo": int.from_bytes(of[8:], "big"),
        "time": START + ahead_ns + writer.rank,  # another moment for each: their clocks were measured one by one
        "offset": -ahead_ns,
        "error": CLOCK_ERROR_NS,
        "drift": 0,
        "rtt": MS,
        "samples": 8,
        "server": "gateway",
    }
