"""What a span costs training, beside what the peer's costs: only the ratio is asserted, times are not."""

import json
import statistics
import subprocess
import sys

from tests.house.tree import ROOT

LEAST_RATIO = 6.0


def test_a_span_with_two_attributes_costs_a_sixth_of_opentelemetrys() -> None:
    program = [sys.executable, "-m", "tests.agent.cost"]

    done = subprocess.run(program, check=True, capture_output=True, text=True, cwd=ROOT)

    pairs = json.loads(done.stdout)
    ratio = statistics.median(their / our for their, our in pairs)
    assert ratio >= LEAST_RATIO, f"{ratio:.2f}: {pairs}"
