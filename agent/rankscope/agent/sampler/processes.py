"""What a rank's process takes of its node, as the system counts it: two short reads a process."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rankscope._host import stat_words
from rankscope.agent.neighbours import Neighbour
from rankscope.agent.sampler.figures import Counters, Figure
from rankscope_proto.names import ProcessRole

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Processes:
    """Reads them.

    Args:
        counters: What the sample before said.
        proc: Where processes tell of themselves.
    """

    def __init__(self, counters: Counters, *, proc: Path = Path("/proc")) -> None:
        self._counters = counters
        self._proc = proc

    def read(self, neighbour: Neighbour) -> Iterator[Figure]:
        """The figures of now; none of a process whose id means nothing here, or that is another one by now."""
        if not neighbour.is_near:
            return
        with contextlib.suppress(OSError, ValueError, LookupError):
            yield from tuple(self._of_stat(neighbour))
        with contextlib.suppress(OSError, ValueError, LookupError):  # of another user's process, say
            yield from tuple(self._of_io(neighbour))

    def _of_stat(self, neighbour: Neighbour) -> Iterator[Figure]:
        head = neighbour.head
        words = stat_words(self._file(neighbour, "stat"))
        if int(words[19]) != head.process_start:
            return
        device = device_of(neighbour)
        busy = self._counters.rate((int(words[11]) + int(words[12])) / _TICKS_A_SECOND, "rank cpu", head.incarnation)
        if busy is not None:
            yield Figure("cpu.rank_busy", busy, device)
        yield Figure("memory.rank", float(int(words[21]) * _PAGE), device)

    def _of_io(self, neighbour: Neighbour) -> Iterator[Figure]:
        told = dict(line.split(": ") for line in self._file(neighbour, "io").read_text().splitlines())
        for name, counter in (("disk.rank_read", "read_bytes"), ("disk.rank_written", "write_bytes")):
            rate = self._counters.rate(int(told[counter]), name, neighbour.head.incarnation)
            if rate is not None:
                yield Figure(name, rate, device_of(neighbour))

    def _file(self, neighbour: Neighbour, name: str) -> Path:
        return self._proc / str(neighbour.head.pid) / name


def device_of(neighbour: Neighbour) -> str:
    """What the figures of a process are said to be of: `rank 3`; of others than trainers their role: `actor 3`."""
    role = ProcessRole.of(neighbour.head.process_role)
    return f"{'rank' if role == ProcessRole.TRAINER else role} {neighbour.head.rank}"
