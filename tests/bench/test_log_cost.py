"""What one log call of ten scalars costs the training loop, whatever became of the gateway or the disk."""

import json
import statistics
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.agent.agents import agents_ended
from tests.agent.programs import command_of, environment
from tests.agent.test_ends import Bad, disk_full, gateway_down, gateway_frozen
from tests.bench.report import Report
from tests.ground.stacks import Stack

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

TRAINING = """
import json, sys, time
import rankscope
run = rankscope.init("cost", run_id="r", quiet=True)
print("ready", flush=True)
sys.stdin.readline()
values = {f"metric {number}": 0.5 for number in range(10)}
took = []
for index in range(5_000):
    for _ in range(4):
        began = time.perf_counter_ns()
        run.log_metrics(values, step=index)
        took.append(time.perf_counter_ns() - began)
    time.sleep(0.002)
print(json.dumps(took), flush=True)
"""
"""More than ten seconds of steps with four calls: longer than a batch waits for room before it is given up."""

CALLS_A_STEP = 4
PERCENTILES = (("p50", 0.5, 5.0), ("p99", 0.99, 50.0), ("p99.9", 0.999, 1_000.0))
"""Name, share and the most µs."""


@contextmanager
def healthy(home: Path) -> Generator[Bad]:
    """A stack that takes everything."""
    server = home / "server"
    server.mkdir()
    stack = Stack(server)
    try:
        yield {"RANKSCOPE_ENDPOINT": stack.gateway}, lambda: None
    finally:
        stack.stop()


STATES = (healthy, gateway_down, gateway_frozen, disk_full)


@pytest.mark.parametrize("state", STATES, ids=[state.__name__ for state in STATES])
def test_a_log_call_of_ten_scalars(
    state: Callable[[Path], AbstractContextManager[Bad]], tmp_path: Path, report: Report
) -> None:
    with state(tmp_path) as (environ, go_bad), agents_ended(tmp_path / "spool"):
        took = calls(environment(tmp_path, **environ), go_bad)
    took_us = [ns / 1e3 for ns in sorted(took)]

    words = state.__name__.replace("_", " ")
    for name, share, most in PERCENTILES:
        figure = took_us[min(len(took_us) - 1, int(share * len(took_us)))]
        report.judge(f"a log call of ten scalars, {words}, {name}", figure, "µs", sense="at most", target=most)
    report.add("  the longest", took_us[-1], "µs")
    # Its code and data have left the caches: what a step that logs once pays.
    report.add("  the first after 2 ms of sleep, p50", statistics.median(took[::CALLS_A_STEP]) / 1e3, "µs")


def calls(environ: dict[str, str], go_bad: Callable[[], object]) -> Sequence[int]:
    """How long each call took, in ns."""
    program = subprocess.Popen(
        command_of(TRAINING), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline().strip() == "ready"
        go_bad()
        program.stdin.write("go\n")
        program.stdin.flush()
        took: list[int] = json.loads(program.stdout.readline())
        assert program.wait(60) == 0
        return took
    finally:
        program.kill()
        program.communicate(timeout=60)
