"""Under data parallelism, on real ranks: what is local, what is reduced, and whose fault it was."""

import pytest

from tests.agent.probe import ranked, wrapped
from tests.agent.probe.trainings import BACKWARD, FORWARD, GRAD, LOCAL, REDUCED, Row
from tests.ground.ranks import Pool


def norms(rows: list[Row], flags: int) -> dict[str, float]:
    return {row["name"]: row["l2"] for row in rows if row["role"] == GRAD and row["flags"] == flags}


def test_local_gradients_differ_over_the_ranks_and_reduced_ones_are_equal(pool: Pool) -> None:
    outcomes = pool.run(ranked.data_parallel, steps=1)

    local = [norms(outcome["tensor_stats"], LOCAL) for outcome in outcomes]
    reduced = [norms(outcome["tensor_stats"], REDUCED) for outcome in outcomes]

    assert len({each["head.weight"] for each in local}) == pool.world_size
    assert all(each == reduced[0] for each in reduced)
    assert set(reduced[0]) == set(local[0])
    assert reduced[0]["head.weight"] != local[0]["head.weight"]


def test_paths_are_those_of_the_model_inside_the_wrapper(pool: Pool) -> None:
    outcomes = pool.run(ranked.data_parallel, steps=1)

    assert {row["name"] for row in outcomes[0]["tensor_stats"]} >= {"blocks.1", "head", "loss", "blocks.1.norm.bias"}


def test_backward_ends_after_the_gradients_have_been_reduced(pool: Pool) -> None:
    for outcome in pool.run(ranked.reduction_is_over_at_the_end_of_backward):
        assert outcome["recorded"] == pytest.approx(outcome["actual"], rel=1e-6)


def test_only_the_rank_whose_values_overflowed_has_nonfinite_layers(pool: Pool) -> None:
    outcomes = pool.run(ranked.data_parallel, steps=4, every=100, bad_rank=2, bad_step=3)

    bad = [
        (rank, row["step"], row["name"])
        for rank, outcome in enumerate(outcomes)
        for row in sorted(outcome["tensor_stats"], key=lambda row: row["time"])
        if row["phase"] == FORWARD and row["nonfinite_count"]
    ]

    assert bad[0] == (2, 3, "blocks.1")
    assert {(rank, step) for rank, step, _ in bad} == {(2, 3)}


def test_the_rank_of_a_nonfinite_value_tells_local_and_reduced_gradients_of_that_step(pool: Pool) -> None:
    outcomes = pool.run(ranked.data_parallel, steps=4, every=100, bad_rank=1, bad_step=2)

    rows = [row for row in outcomes[1]["tensor_stats"] if row["step"] == 2 and row["phase"] == BACKWARD]

    assert {row["flags"] for row in rows if row["nonfinite_count"]} == {LOCAL, REDUCED}


def test_gradients_that_are_only_accumulated_are_not_called_reduced(pool: Pool) -> None:
    for outcome in pool.run(ranked.accumulating):
        found = {(row["microstep"], row["flags"]) for row in outcome["tensor_stats"] if row["role"] == GRAD}
        assert found == {(0, LOCAL), (1, LOCAL), (1, REDUCED)}


def test_every_wrapper_leaves_the_graph_as_its_author_wrote_it(pool: Pool) -> None:
    for outcome in pool.run(wrapped.graphs):
        assert outcome["plain"][1][:2] == ("embed", "Embedding")
        assert all(graph == outcome["plain"] for graph in outcome.values())
