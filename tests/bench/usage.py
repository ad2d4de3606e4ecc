"""What processes used, from /proc."""

import os
from collections import defaultdict
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 2**20


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS


def threads_cpu_s(pid: int) -> dict[str, float]:
    """CPU seconds of a process' living threads, by name."""
    spent: defaultdict[str, float] = defaultdict(float)
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            head, _, tail = (task / "stat").read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = tail.split()
        spent[head.partition("(")[2]] += (int(fields[11]) + int(fields[12])) / TICKS
    return spent


def rss_mib(pid: int) -> float:
    """Resident memory of a process, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def label(pid: int) -> str:
    """What a process of the stack is."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    for word in ("gateway", "agent", "up", "broker"):
        if word in command[:4] or (word == "broker" and "valkey" in command[0]):
            return {"up": "writer and query service", "agent": "HTTP ingest"}.get(word, word)
    return Path(command[0]).name
