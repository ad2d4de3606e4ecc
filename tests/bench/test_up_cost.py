"""What `rankscope up` costs before it does anything."""

from pathlib import Path

import pytest

from tests.bench.report import Report
from tests.bench.usage import cpu_s, label, rss_mib
from tests.ground.stacks import Stack

pytestmark = pytest.mark.bench


def test_start_and_idle_memory(tmp_path: Path, report: Report) -> None:
    stack = Stack(tmp_path)
    try:
        spent = {label(pid): cpu_s(pid) for pid in stack.processes()}
        stack.get("/runs")
        memory = {label(pid): rss_mib(pid) for pid in stack.processes()}
    finally:
        stack.stop()

    report.judge("`rankscope up` until ready", sum(spent.values()), "s of CPU", sense="at most", target=5)
    for name, seconds in sorted(spent.items()):
        report.add(f"  {name}", seconds, "s of CPU")
    report.judge("`rankscope up` idle", sum(memory.values()), "MiB RSS", sense="at most", target=700)
    for name, mib in sorted(memory.items()):
        report.add(f"  {name}", mib, "MiB RSS")
