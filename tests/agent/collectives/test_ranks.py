"""Collectives of four real ranks over gloo: what is known of each, and that all ranks know it by the same number."""

from collections.abc import Iterator

import pytest

from rankscope_proto.names import COLLECTIVE_FLAGS, Phase
from tests.agent.collectives import ranked
from tests.agent.collectives.alone import Row
from tests.agent.collectives.ranked import Found
from tests.ground.ranks import Pool

ASYNC, P2P = COLLECTIVE_FLAGS["async"], COLLECTIVE_FLAGS["p2p"]


@pytest.fixture(scope="module")
def works(pool: Pool) -> list[dict[str, Found]]:
    """By rank: each kind of work, and what was recorded of it."""
    return pool.run(ranked.everything, timeout_s=150)


def rows_by_rank(works: list[dict[str, Found]], work: str) -> list[list[Row]]:
    return [sorted(of_rank[work]["rows"], key=lambda row: row["entry"]) for of_rank in works]


def ops(rows: list[Row]) -> list[str]:
    return [row["op"] for row in rows]


def matched(ranks: list[list[Row]]) -> Iterator[tuple[Row, ...]]:
    """The rows of each collective that all of these ranks took part in."""
    keyed = [{(row["group"], row["cseq"]): row for row in rows if row["cseq"]} for rows in ranks]
    for key in sorted(key for key in keyed[0] if all(key in rows for rows in keyed)):
        yield tuple(rows[key] for rows in keyed)


def test_calls_are_recorded_with_what_was_asked_for(works: list[dict[str, Found]]) -> None:
    rows = rows_by_rank(works, "by_hand")[0]
    by_op = {row["op"]: row for row in rows}

    wanted = ["barrier", "all_reduce", "all_gather", "broadcast", "reduce_scatter", "monitored_barrier"]
    assert [op for op in ops(rows) if op in wanted][:6] == wanted
    assert (by_op["all_reduce"]["shape"], by_op["all_reduce"]["bytes"]) == ("3x4", 48)
    assert (by_op["all_reduce"]["reduction"], by_op["all_reduce"]["dtype"]) == ("max", "float32")
    assert by_op["reduce_scatter"]["shape"] == "2;2;2;2"
    assert (by_op["broadcast"]["dtype"], by_op["broadcast"]["reduction"]) == ("float64", "")
    assert (by_op["broadcast"]["group_ranks"], by_op["all_reduce"]["group_ranks"]) == ("0-1", "0-3")
    assert (by_op["all_reduce"]["step"], by_op["all_reduce"]["microstep"]) == (7, 2)
    assert by_op["all_gather"]["phase"] == Phase.OPTIMIZER.code
    assert (rows[0]["step"], rows[-1]["step"]) == (None, None)


def test_a_call_that_waits_ends_when_it_is_over(works: list[dict[str, Found]]) -> None:
    ranks = rows_by_rank(works, "by_hand")
    called = [row for rows in ranks for row in rows if row["entry_source"] == "call"]

    assert called
    assert {row["exit_source"] for row in called} == {"call"}
    assert all(row["exit"] >= row["entry"] for row in called)
    for rows in matched(ranks):
        if rows[0]["op"] in {"all_reduce", "barrier", "all_gather"} and rows[0]["entry_source"] == "call":
            # On one node all clocks are the same: nobody is through before the last one came.
            assert min(row["exit"] for row in rows) >= max(row["entry"] for row in rows)


@pytest.mark.parametrize("work", ["by_hand", "between_two", "under_ddp", "with_a_hook", "sharded"])
def test_all_ranks_know_a_collective_by_the_same_number(works: list[dict[str, Found]], work: str) -> None:
    ranks = rows_by_rank(works, work)

    pairs = list(matched(ranks))

    assert pairs
    for rows in pairs:
        assert len({(row["op"], row["shape"], row["group_ranks"], row["step"]) for row in rows}) == 1
    everywhere = [row for row in ranks[0] if row["cseq"] and row["group_ranks"] == "0-3"]
    assert len(pairs) == len(everywhere)
    assert not any(of_rank[work]["gaps"] for of_rank in works)


def test_numbers_are_without_holes_and_given_once(works: list[dict[str, Found]]) -> None:
    for work in ("under_ddp", "sharded", "one_waits_for_nobody"):
        for rows in rows_by_rank(works, work):
            numbers = [row["cseq"] for row in rows if row["group_ranks"] == "0-3"]
            assert sorted(numbers) == list(range(min(numbers), max(numbers) + 1))


def test_calls_between_two_ranks_have_no_number_and_do_not_shift_those_of_others(works: list[dict[str, Found]]) -> None:
    ranks = rows_by_rank(works, "between_two")

    assert [ops(rows)[:1] for rows in ranks] == [["send"], ["recv"], ["batch_isend_irecv"], ["batch_isend_irecv"]]
    assert all((rows[0]["cseq"], rows[0]["flags"] & P2P) == (0, P2P) for rows in ranks)
    assert {rows[-1]["op"] for rows in ranks} == {"all_reduce"}
    assert len({rows[-1]["cseq"] for rows in ranks}) == 1


def test_of_calls_that_nobody_waits_for_some_have_the_end_of_their_future(works: list[dict[str, Found]]) -> None:
    rows = rows_by_rank(works, "one_waits_for_nobody")[0]

    assert all(row["flags"] & ASYNC for row in rows)
    sources = [row["exit_source"] for row in rows]
    assert sources.count("future") == 2
    assert set(sources) == {"", "future"}
    assert all(row["exit"] is None for row in rows if not row["exit_source"])


def test_ddps_own_collectives_come_from_the_recorder_and_their_ends_from_ddp(works: list[dict[str, Found]]) -> None:
    for rows in rows_by_rank(works, "under_ddp"):
        reductions = [row for row in rows if row["op"] == "all_reduce" and row["step"] is not None]
        assert {row["entry_source"] for row in rows} == {"recorder"}
        assert {row["step"] for row in reductions} == set(range(ranked.STEPS))
        assert {row["phase"] for row in reductions} == {Phase.BACKWARD.code}
        ended = [row for row in reductions if row["exit_source"] == "ddp"]
        assert ended
        assert all(row["exit"] >= row["entry"] for row in ended)


def test_the_users_hook_is_called_and_its_future_tells_the_end(works: list[dict[str, Found]]) -> None:
    for rank, rows in enumerate(rows_by_rank(works, "with_a_hook")):
        # One bucket in four, and of the last step's the callback may come when the run has ended.
        ended = [row for row in rows if row["exit_source"] == "hook"]
        assert {row["op"] for row in ended} == {"all_reduce"}
        assert all(row["module"].endswith((".weight", ".bias")) for row in ended)
        assert all(row["exit"] >= row["entry"] for row in ended)
        assert works[rank]["with_a_hook"]["told"] == [{"is_the_users": True}]


def test_fsdp_and_functional_collectives_are_seen(works: list[dict[str, Found]]) -> None:
    sharded, unseen = rows_by_rank(works, "sharded")[0], rows_by_rank(works, "unseen")[0]

    assert {"all_gather_single", "reduce_scatter_single"} <= set(ops(sharded))
    assert {row["entry_source"] for row in sharded if row["step"] == 0} == {"call"}
    (row,) = (row for row in unseen if row["step"] == 4)
    assert (row["op"], row["shape"], row["entry_source"]) == ("all_reduce", "6", "recorder")


def test_what_torch_refuses_is_refused_as_before_and_is_no_collective(works: list[dict[str, Found]]) -> None:
    for rank, of_rank in enumerate(works):
        found = of_rank["refused"]
        assert "Expected parameter `tensor`" in found["told"][0]["said"]
        assert found["faults"] == [{}]
        in_pair = [row for row in found["rows"] if row["group_ranks"] == "0-1"]
        assert len(in_pair) == (1 if rank < 2 else 0)


def test_a_name_that_is_given_anew_is_another_group(pool: Pool) -> None:
    for found in pool.run(ranked.begun_anew, group=False):
        first, second = [row for row in found["rows"] if row["op"] == "all_reduce"]
        assert second["group"] == f"{first['group']}#1"
        assert (first["cseq"], second["cseq"]) == (1, 1)
        assert not found["gaps"]


@pytest.mark.parametrize("has_hook", [False, True])
def test_losses_and_parameters_are_the_same_to_the_bit(pool: Pool, *, has_hook: bool) -> None:
    plain = pool.run(ranked.losses, is_recorded=False, has_hook=has_hook)

    recorded = pool.run(ranked.losses, is_recorded=True, has_hook=has_hook)

    assert recorded == plain
