"""The node's figures, from /proc and the control group that the agent runs in: two dozen short reads.

What the system does not tell, or says in another form, is left out: a figure is never made up.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rankscope.agent.sampler.figures import Counters, Figure

MOST_DEVICES = 8
"""Network interfaces, and disks: those that moved the most."""

_SECTOR = 512
"""Bytes of a sector of /proc/diskstats, whatever the disk's own is."""

_NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
"""What stands for others, or for none: what passes through them is counted at the disk, too."""

_NO_INTERFACES = ("lo", "veth", "docker", "br-", "ifb", "virbr", "cni", "flannel")


class Node:
    """Reads them.

    Args:
        counters: What the sample before said.
        proc: Where processes and the system tell of themselves.
        groups: Where control groups (version 2) do.
    """

    def __init__(
        self, counters: Counters, *, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
    ) -> None:
        self._counters = counters
        self._proc = proc
        self._groups = groups
        self._parts: Sequence[Callable[[], Iterator[Figure]]] = (
            *(self._cpu, self._memory, self._network, self._disks),
            *(self._group_cpu, self._group_memory),
        )

    def read(self) -> Iterator[Figure]:
        """The figures of now."""
        for part in self._parts:
            with contextlib.suppress(OSError, ValueError, LookupError):
                yield from tuple(part())

    def _cpu(self) -> Iterator[Figure]:
        ticks = [int(word) for word in self._lines("stat")[0].split()[1:9]]
        idle = ticks[3] + ticks[4]  # of the eight, the time in which nothing ran, and that in which a disk was awaited
        whole = self._counters.rate(sum(ticks), "cpu")
        spare = self._counters.rate(idle, "cpu idle")
        if whole and spare is not None:
            yield Figure("cpu.busy", min(1.0, max(0.0, 1.0 - spare / whole)))

    def _memory(self) -> Iterator[Figure]:
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in self._lines("meminfo"))}
        yield Figure("memory.used", float((kib["MemTotal"] - kib["MemAvailable"]) * 1024))
        yield Figure("memory.total", float(kib["MemTotal"] * 1024))

    def _network(self) -> Iterator[Figure]:
        moved: dict[str, tuple[int, int]] = {}
        for line in self._lines("net/dev")[2:]:
            name, _, rest = line.partition(":")
            words = rest.split()
            moved[name.strip()] = int(words[0]), int(words[8])
        yield from self._of_devices(_busiest(moved, _NO_INTERFACES), ("net.received", "net.sent"))

    def _disks(self) -> Iterator[Figure]:
        moved: dict[str, tuple[int, int]] = {}
        for line in self._lines("diskstats"):
            words = line.split()
            moved[words[2]] = int(words[5]) * _SECTOR, int(words[9]) * _SECTOR
        whole = {name: both for name, both in moved.items() if not _is_partition(name, moved)}
        yield from self._of_devices(_busiest(whole, _NO_DISKS), ("disk.read", "disk.written"))

    def _of_devices(self, moved: dict[str, tuple[int, int]], names: tuple[str, str]) -> Iterator[Figure]:
        for device, totals in moved.items():
            for name, total in zip(names, totals, strict=True):
                rate = self._counters.rate(total, name, device)
                if rate is not None:
                    yield Figure(name, rate, device)

    def _group_cpu(self) -> Iterator[Figure]:
        told = dict(line.split() for line in (self._group() / "cpu.stat").read_text().splitlines())
        busy = self._counters.rate(int(told["usage_usec"]) / 1e6, "group cpu")
        if busy is not None:
            yield Figure("cpu.group_busy", busy)
        throttled = self._counters.rate(int(told["throttled_usec"]) / 1e6, "group throttled")
        if throttled is not None:
            yield Figure("cpu.group_throttled", throttled)

    def _group_memory(self) -> Iterator[Figure]:
        yield Figure("memory.group_used", float((self._group() / "memory.current").read_text()))
        limit = (self._group() / "memory.max").read_text().strip()
        if limit != "max":
            yield Figure("memory.group_limit", float(limit))

    def _group(self) -> Path:
        """The folder of the group that this process is in.

        Raises:
            LookupError: The groups of this node are of version 1.
        """
        paths = {hierarchy: path for hierarchy, _, path in (line.split(":", 2) for line in self._lines("self/cgroup"))}
        return self._groups / paths["0"].strip("/")

    def _lines(self, name: str) -> list[str]:
        return (self._proc / name).read_text().splitlines()


def _busiest(moved: dict[str, tuple[int, int]], left_out: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    used = ((name, both) for name, both in moved.items() if any(both) and not name.startswith(left_out))
    return dict(sorted(used, key=lambda one: -sum(one[1]))[:MOST_DEVICES])


def _is_partition(name: str, known: dict[str, tuple[int, int]]) -> bool:
    """Whether it is a part of another one: sda1 of sda, nvme0n1p2 of nvme0n1."""
    whole = name.rstrip("0123456789")
    return whole != name and (whole in known or (whole.endswith("p") and whole[:-1] in known))
