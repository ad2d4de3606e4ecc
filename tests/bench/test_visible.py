"""How soon a recorded row is visible to a query, with every tier well and the SDK's own sealing."""

import time
from pathlib import Path

import pytest

from tests.bench.report import Report
from tests.ground.processes import wait_until
from tests.system.site import Site
from tests.system.trial import Trial

ROWS = 400
P50_S, P99_S = 1.0, 3.0
"""The promise of a healthy path."""


@pytest.mark.bench
@pytest.mark.timeout(240)
def test_a_row_is_visible_within_seconds_of_being_recorded(report: Report, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    trial = Trial(site, "visible")
    try:
        site.add_tiers()
        trial.add_source(SOURCE_SEAL_S="1.0")
        trial.await_stored(50)

        seen = first_sights(trial)
    finally:
        trial.stop()
        site.stop()

    delays = sorted(seen[at] - at / 1e9 for at in seen)
    p50, p99 = delays[len(delays) // 2], delays[len(delays) * 99 // 100]
    report.judge("a row is visible after, p50", p50, "s", sense="at most", target=P50_S)
    report.judge("  p99", p99, "s", sense="at most", target=P99_S)
    report.add("  most", delays[-1], "s")
    assert p99 <= 2 * P99_S


def first_sights(trial: Trial) -> dict[int, float]:
    """When each row was seen first, by the time it was recorded at (ns); rows from before the start are left out."""
    started, seen = time.time_ns(), dict[int, float]()
    query = "SELECT DISTINCT time FROM scalars WHERE run_id = {run:String} AND time > {after:Int64}"

    def look() -> bool:
        after = max(seen, default=started)
        answer = trial.site.store.client.query(query, parameters={"run": trial.run, "after": after})
        now = time.time()
        for (at,) in answer.result_rows:
            seen[at] = now
        return len(seen) >= ROWS

    wait_until(look, timeout_s=120, what=f"{ROWS} rows")
    return seen
