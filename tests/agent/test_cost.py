"""What a span costs training, beside what the peer's costs: only the ratio is asserted, times are not."""

import json
import subprocess
import sys

from tests.house.tree import ROOT

LEAST_RATIO = 8.0
MOST_OUTAGE_RATIO = 1.5


def test_a_span_with_two_attributes_costs_an_eighth_of_opentelemetrys() -> None:
    program = [sys.executable, "-m", "tests.agent.cost"]

    done = subprocess.run(program, check=True, capture_output=True, text=True, cwd=ROOT)

    pairs = json.loads(done.stdout)
    # The least of each: what disturbs a round, a neighbour's cache misses say, only ever adds.
    ratio = min(their for their, _ in pairs) / min(our for _, our in pairs)
    assert ratio >= LEAST_RATIO, f"{ratio:.2f}: {pairs}"


def test_a_log_call_costs_no_more_where_nothing_can_be_kept() -> None:
    program = [sys.executable, "-m", "tests.agent.log_cost"]

    done = subprocess.run(program, check=True, capture_output=True, text=True, cwd=ROOT)

    for state, pairs in json.loads(done.stdout).items():
        ratio = min(bad for _, bad in pairs) / min(usual for usual, _ in pairs)
        assert ratio <= MOST_OUTAGE_RATIO, f"{state}: {ratio:.2f}: {pairs}"
