"""Under a pipeline schedule each stage tells of its own gradients, and what it cannot tell is said."""

import pytest

from tests.agent.probe.trainings import GRAD, LOCAL, WEIGHT, Row
from tests.agent.probe.ways import staged
from tests.ground.ranks import Pool


@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B"])
def test_a_stage_has_a_running_total_for_each_microbatch_in_the_order_of_backwards(pool: Pool, schedule: str) -> None:
    for outcome in pool.run(staged.one_stage_a_rank, schedule=schedule):
        rows: list[Row] = [row for row in outcome["rows"] if row["name"] == "0.weight"]
        totals = [row["l2"] for row in rows if (row["role"], row["flags"]) == (GRAD, LOCAL)]
        assert totals == pytest.approx([total for (total,) in outcome["totals"]], rel=1e-5)
        numbers = [row["microstep"] for row in rows if row["role"] == GRAD]
        first = numbers[0]  # 1 where torch tried the shapes of gradients by a backward of its own before the first
        assert numbers == list(range(first, first + staged.MICROBATCHES))
        assert len([row for row in rows if row["role"] == WEIGHT]) == 1
        assert outcome["failures"] == 0


def test_interleaved_stages_in_one_list_have_their_totals_and_that_weights_are_missing_is_said(pool: Pool) -> None:
    for outcome in pool.run(staged.two_stages_a_rank, schedule="ScheduleInterleaved1F1B"):
        totals = {row["name"]: row["l2"] for row in outcome["rows"] if row["role"] == GRAD and "weight" in row["name"]}
        first, second = outcome["totals"][-1]
        assert totals == pytest.approx({"0.0.weight": first, "1.0.weight": second}, rel=1e-5)
        assert not [row for row in outcome["rows"] if row["role"] == WEIGHT]
        assert sum(gap.startswith("weights: no backward was seen to begin") for gap in outcome["gaps"]) == 1


def test_gradients_of_a_schedule_that_splits_backward_are_right_or_said_to_be_missing(pool: Pool) -> None:
    for outcome in pool.run(staged.two_stages_a_rank, schedule="ScheduleInterleavedZeroBubble"):
        expected = dict(zip(("0.0.weight", "1.0.weight"), outcome["totals"][-1], strict=True))
        told = {row["name"]: row["l2"] for row in outcome["rows"] if row["role"] == GRAD and row["name"] in expected}
        assert told == pytest.approx({name: expected[name] for name in told}, rel=1e-5)
        missing = len(expected) - len(told)
        assert missing
        said = f"gradients of {2 * missing} parameters, such as"
        assert sum(gap.startswith(said) for gap in outcome["gaps"]) == 1
