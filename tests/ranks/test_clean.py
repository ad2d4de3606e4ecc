"""A thousand steps in which nothing is wrong: no rule fires, while they run and afterwards."""

import pytest

from tests.cli.programs import rankscope
from tests.ground.processes import wait_until
from tests.ground.stacks import Stack
from tests.ranks.faults import RANKS
from tests.ranks.launches import Nursery

STEPS = 1_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_a_thousand_clean_steps_nothing_is_found(nursery: Nursery, stack: Stack) -> None:
    launch = nursery.train("clean", steps=STEPS)
    verdicts: list[object] = []

    def is_over() -> bool:
        if launch.is_known():
            verdicts.append(launch.get("/hang")["verdict"])
        return len(launch.statuses()) == RANKS

    wait_until(is_over, timeout_s=600, every_s=1, what="a thousand steps")
    assert launch.statuses() == dict.fromkeys(range(RANKS), 0), nursery.said(launch)
    launch.await_rows()
    checked = rankscope("check", launch.run, home=stack.home)

    assert [verdict for verdict in verdicts if verdict] == []
    assert checked.status == 0, checked.stdout
    assert launch.get("/findings")["items"] == []
    assert [item for item in launch.get("/stragglers")["items"] if item["is_straggler"]] == []
