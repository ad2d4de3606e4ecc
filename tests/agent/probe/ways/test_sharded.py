"""Over several ranks: statistics are of this rank's part, say so, and no hook talks to another rank."""

import pytest

from rankscope_proto.names import Role
from tests.agent.probe.trainings import GRAD, LOCAL, REDUCED, WEIGHT, Row
from tests.agent.probe.ways import sharded
from tests.ground.ranks import Pool

INCREMENT, UPDATE = Role.GRAD_INCREMENT.code, Role.UPDATE.code


def norms(rows: list[Row], role: int, *, flags: int, microstep: int) -> dict[str, float]:
    chosen = [row for row in rows if (row["role"], row["flags"], row["microstep"]) == (role, flags, microstep)]
    return {row["name"]: row["l2"] for row in chosen}


def test_of_fully_sharded_parameters_each_rank_tells_its_own_part_and_where_it_lies(pool: Pool) -> None:
    outcomes = pool.run(sharded.fully_sharded, watching=list(range(pool.world_size)))

    for outcome in outcomes:
        rows: list[Row] = outcome["rows"]
        assert norms(rows, WEIGHT, flags=0, microstep=0) == pytest.approx(outcome["weights"], rel=1e-5, abs=1e-9)
        reduced = norms(rows, GRAD, flags=REDUCED, microstep=1)
        assert reduced == pytest.approx(outcome["gradients"], rel=1e-5, abs=1e-9)
        assert {row["placement"] for row in rows} == {"S(0)"}
        assert {row["name"]: row["shape"] for row in rows} == outcome["shapes"]
        assert not [row for row in rows if row["flags"] & LOCAL]
    weights = [row for outcome in outcomes for row in outcome["rows"] if row["role"] == WEIGHT]
    for name in outcomes[0]["shapes"]:
        parts = [row for row in weights if row["name"] == name]
        assert sum(row["numel_local"] for row in parts) == parts[0]["numel_global"]


def test_an_update_of_sharded_parameters_is_of_this_ranks_part(pool: Pool) -> None:
    for outcome in pool.run(sharded.fully_sharded, watching=[0, 1, 2, 3]):
        ratios = {row["name"]: row["update_ratio"] for row in outcome["rows"] if row["role"] == UPDATE}
        expected = 0.1 * outcome["gradients"]["head.weight"] / outcome["weights"]["head.weight"]
        assert ratios["head.weight"] == pytest.approx(expected, rel=1e-4)


def test_that_increments_of_fully_sharded_parameters_are_not_seen_is_said_once(pool: Pool) -> None:
    for outcome in pool.run(sharded.fully_sharded, watching=[0, 1, 2, 3]):
        assert not [row for row in outcome["rows"] if row["role"] == INCREMENT]
        assert sum("increments of" in gap for gap in outcome["gaps"]) == 1


def test_a_training_that_only_one_rank_watches_ends_so_no_hook_waits_for_the_others(pool: Pool) -> None:
    outcomes = pool.run(sharded.fully_sharded, watching=[1])

    assert [bool(outcome["rows"]) for outcome in outcomes] == [False, True, False, False]


def test_of_tensor_parallel_layers_each_rank_tells_its_part_which_nobody_has_reduced(pool: Pool) -> None:
    for outcome in pool.run(sharded.tensor_parallel):
        rows: list[Row] = outcome["rows"]
        placements = {row["name"]: row["placement"] for row in rows}
        assert placements == {"0.weight": "S(0)", "0.bias": "S(0)", "2.weight": "S(1)", "2.bias": "R"}
        assert norms(rows, GRAD, flags=LOCAL, microstep=1) == pytest.approx(outcome["gradients"], rel=1e-5)
        halves = {name: norm / 2 for name, norm in outcome["gradients"].items()}
        assert norms(rows, INCREMENT, flags=LOCAL, microstep=1) == pytest.approx(halves, rel=1e-5)


@pytest.mark.parametrize("bucket_view", [False, True])
def test_data_parallel_accumulation_has_increments_totals_and_what_was_reduced(pool: Pool, bucket_view: bool) -> None:
    for outcome in pool.run(sharded.accumulating, bucket_view=bucket_view):
        rows: list[Row] = outcome["rows"]
        assert norms(rows, INCREMENT, flags=LOCAL, microstep=1) == pytest.approx(outcome["increments"], rel=1e-4)
        assert norms(rows, GRAD, flags=LOCAL, microstep=1) == pytest.approx(outcome["totals"], rel=1e-4)
        assert norms(rows, GRAD, flags=REDUCED, microstep=1) == pytest.approx(outcome["reduced"], rel=1e-5)
        assert not norms(rows, GRAD, flags=REDUCED, microstep=0)
