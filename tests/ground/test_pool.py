"""The pool runs cases on real ranks and survives what a case does to them."""

import pytest

from tests.ground import cases
from tests.ground.processes import alive
from tests.ground.ranks import Pool, RanksFailedError


def test_every_rank_runs_the_case_in_one_process_group(pool: Pool) -> None:
    assert pool.run(cases.summed, start=10) == [46, 46, 46, 46]


def test_a_case_that_raises_is_told_per_rank_and_the_pool_goes_on(pool: Pool) -> None:
    with pytest.raises(RanksFailedError, match=r"rank 2:(.|\n)*the update of rank two is wrong"):
        pool.run(cases.raising_on, rank=2)

    before = pool.pids
    assert pool.run(cases.summed, start=0) == [6] * 4
    assert pool.pids == before


def test_a_case_has_its_environment_for_its_own_time_only(pool: Pool) -> None:
    assert pool.run(cases.environment, environ={"RANKSCOPE_X": "1"}, name="RANKSCOPE_X") == ["1"] * 4
    assert pool.run(cases.environment, name="RANKSCOPE_X") == [None] * 4


def test_a_case_that_hangs_shows_where_and_the_next_gets_new_ranks(pool: Pool) -> None:
    pool.run(cases.environment, name="RANK")
    before = pool.pids

    with pytest.raises(RanksFailedError, match=r"rank 1 did not answer within 2 s(.|\n)*hanging_on"):
        pool.run(cases.hanging_on, rank=1, timeout_s=2, group=False)  # a group may take as long to meet

    assert not any(alive(pid) for pid in before)
    assert pool.run(cases.summed, start=1) == [10] * 4


@pytest.mark.slow
def test_a_rank_that_dies_is_named(pool: Pool) -> None:
    with pytest.raises(RanksFailedError, match="rank 3 died"):
        pool.run(cases.dying_on, rank=3, timeout_s=5)
