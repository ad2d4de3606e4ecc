"""Four real ranks of a torchrun launch land in one run of a real stack."""

import httpx
import pytest

from tests.agent import rank_cases
from tests.ground.processes import wait_until
from tests.ground.ranks import Pool
from tests.ground.stacks import Stack

STEPS = 3


@pytest.mark.parametrize("group", [False, True], ids=["before the process group", "with the process group"])
def test_all_ranks_agree_on_one_run_and_one_launch(pool: Pool, stack: Stack, group: bool) -> None:
    joined = joined_by(pool, stack, run_id=None, steps=1, group=group)

    assert len({run for run, _, _ in joined}) == 1
    assert len({launch for _, launch, _ in joined}) == 1
    assert [rank for _, _, rank in joined] == [0, 1, 2, 3]


def test_a_second_run_of_the_same_ranks_is_another_launch(pool: Pool, stack: Stack) -> None:
    launches = {joined_by(pool, stack, run_id="twice", steps=1)[0][1] for _ in range(2)}

    assert len(launches) == 2


def test_what_the_ranks_emitted_is_what_the_store_has(pool: Pool, stack: Stack) -> None:
    joined_by(pool, stack, run_id="complete", steps=STEPS)

    wait_until(lambda: is_complete(stack, "complete"), what="be complete in the store")

    sections = stack.get("/runs/complete/completeness?project=pool")["sections"]
    stored = {section["section"]: section["stored"] for section in sections}
    assert (stored["spans"], stored["scalars"], stored["run_info"]) == (36, 12, 8)
    assert stored["events"] in {4, 5}  # the last word of each rank, and of their agent where it is there already


def joined_by(
    pool: Pool, stack: Stack, *, run_id: str | None, steps: int, group: bool = False
) -> list[tuple[str, str, int]]:
    """Run id, launch id and rank of each rank, all of which record into the stack."""
    return pool.run(
        rank_cases.join_and_step,
        environ={"RANKSCOPE_HOME": str(stack.home)},
        group=group,
        run_id=run_id,
        endpoint=stack.gateway,
        steps=steps,
    )


def is_complete(stack: Stack, run: str) -> bool:
    try:
        found = stack.get(f"/runs/{run}/completeness?project=pool")
    except httpx.HTTPStatusError:
        return False  # no row of the run is there yet
    trainers = [process for process in found["processes"] if process["process_role"] == "trainer"]
    return bool(found["complete"]) and len(trainers) == 4
