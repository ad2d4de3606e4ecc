"""The judge of hangs over standings as they are seen: each kind by its picture, and nothing while ranks only wait."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rankscope_query_api.ranks.hangs import judge, open_collectives
from rankscope_query_api.ranks.verdicts import Verdict
from rankscope_query_api.standing import Entered, InGroup, ProcessGroup, Standing, State

S = 10**9
NOW = 1_000 * S
WORLD = {"0": ProcessGroup("0", (0, 1, 2), 100_000_000, 200_000_000)}


def standing(  # noqa: PLR0913 - a row of the table
    rank: int,
    enqueued: int,
    completed: int,
    *,
    op: str = "all_reduce",
    shape: str = "1000",
    state: State = "waiting",
    still_s: float | None = 6.0,
    heard_s: float = 1.0,
    group: str = "0",
) -> Standing:
    """Where a rank stands in one group."""
    return Standing(
        rank=rank,
        incarnation=f"{rank:032x}",
        node="node-0",
        state=state,
        heard_ns=NOW - int(heard_s * S),
        since_ns=None if still_s is None else NOW - int(still_s * S),
        step=7,
        phase=3,
        groups=(InGroup(group, enqueued, completed, op, shape),),
    )


def waiting(rank: int, cseq: int = 43, **more: Any) -> Standing:
    """A rank that has entered a collective and not left it."""
    return standing(rank, cseq, cseq - 1, **more)


def verdict(
    standings: Sequence[Standing],
    groups: Mapping[str, ProcessGroup] = WORLD,
    entered: Sequence[Entered] = (),
    **thresholds: float,
) -> Verdict:
    """The verdict, which there is."""
    found = judge(standings, groups, entered=entered, now_ns=NOW, thresholds=thresholds)
    assert found is not None
    return found


def is_quiet(standings: Sequence[Standing], groups: Mapping[str, ProcessGroup] = WORLD, **thresholds: float) -> bool:
    """Whether nothing is said."""
    return judge(standings, groups, now_ns=NOW, thresholds=thresholds) is None


def test_rows_that_none_followed_show_no_wait() -> None:
    behind = [waiting(0, still_s=9.0, heard_s=7.0), standing(1, 2, 2, state="running"), waiting(2, heard_s=7.0)]

    assert is_quiet(behind)


@pytest.mark.parametrize("state", ["stopped", "stuck"])
def test_a_row_that_none_followed_shows_no_process_that_stands_still_for_long(state: State) -> None:
    behind = standing(1, 42, 42, state=state, still_s=9.0, heard_s=8.0)

    assert is_quiet([waiting(0, still_s=3.0), behind, waiting(2, still_s=3.0)])


def test_the_rank_that_did_not_come_is_named_with_the_collective_and_its_module() -> None:
    rows = [Entered(0, "0", 43, "all_reduce", "1000", "layers.2.mlp")]
    found = verdict([waiting(0), standing(1, 42, 42, state="running", still_s=9), waiting(2)], entered=rows)

    assert (found.kind, found.ranks, found.group, found.cseq, found.op) == ("rank_missing", [1], "0", 43, "all_reduce")
    assert (found.module, found.step, found.waiting, found.confidence) == ("layers.2.mlp", 7, [0, 2], "likely")
    assert found.sentence == (
        "rank 1 did not come to all_reduce #43 of group 0: it has not entered it; "
        "ranks 0, 2 wait in all_reduce #43 of group 0"
    )


def test_a_rank_that_has_ended_is_missing_and_not_dead() -> None:
    found = verdict([waiting(0), standing(1, 42, 42, state="ended", heard_s=60), waiting(2)])

    assert (found.kind, found.ranks) == ("rank_missing", [1])
    assert "it has ended" in found.sentence


def test_the_frame_of_the_one_that_is_missing_is_told() -> None:
    frames = '["wait (threading.py:327)", "call (torch/nn/module.py:9)", "load (data.py:7)", "main (train.py:3)"]'
    stack = f'[{{"thread": "MainThread", "frames": {frames}}}]'
    late = replace(standing(1, 42, 42, state="running"), stack=stack)

    found = verdict([waiting(0), late, waiting(2)])

    assert (found.stack, found.evidence["frame"]) == (stack, "load (data.py:7)")
    assert "it has not entered it; it is in load (data.py:7)" in found.sentence
    assert "frame" not in verdict([waiting(0), replace(late, stack='{"no": "frames"}'), waiting(2)]).evidence


def test_a_row_of_a_rank_that_runs_shows_a_moment_and_no_wait() -> None:
    inside = standing(0, 43, 42, state="running", still_s=7)

    assert is_quiet([inside, standing(1, 49, 49, state="running"), standing(2, 48, 47, state="running")])


def test_another_operation_in_the_same_place_is_an_order_mismatch() -> None:
    found = verdict([waiting(0), waiting(1, op="broadcast"), waiting(2)])

    assert (found.kind, found.ranks, found.confidence) == ("order_mismatch", [1], "certain")
    assert "rank 1: broadcast(1000)" in found.sentence


@pytest.mark.parametrize(("one", "other"), [("reduce_scatter_single", "all_reduce"), ("_allgather_base", "all_gather")])
def test_one_operation_under_two_names_is_no_mismatch(one: str, other: str) -> None:
    found = verdict([waiting(0, op=one), waiting(1, op=other), waiting(2, op=one)])

    assert found.kind == "none_left"


def test_a_process_that_died_over_a_size_is_told_by_the_size() -> None:
    dead = replace(waiting(1, shape="999", state="dead"), died_ns=NOW - S)
    found = verdict([standing(0, 43, 43, state="ended"), dead, standing(2, 43, 43, state="running", still_s=None)])

    assert (found.kind, found.ranks) == ("size_mismatch", [1])
    assert "rank 0: 1000; rank 1: 999" in found.sentence


def test_a_row_of_before_does_not_hide_what_the_dead_one_entered() -> None:
    dead = replace(waiting(1, shape="999", state="dead"), died_ns=NOW - S)
    before = standing(2, 41, 40, state="running", heard_s=4)

    found = verdict([replace(waiting(0, state="ended")), dead, before])

    assert (found.kind, found.ranks, found.cseq) == ("size_mismatch", [0, 1], 43)


def test_what_a_dead_one_has_left_may_be_told_late() -> None:
    dead = replace(standing(1, 43, 41, shape="999", state="dead"), died_ns=NOW - S)
    others = [standing(rank, 43, 43, state="ended") for rank in (0, 2)]

    found = verdict([*others, dead])

    assert (found.kind, found.ranks, found.cseq) == ("size_mismatch", [1], 43)


def test_another_shape_of_the_same_size_and_sizes_that_may_differ_are_no_mismatch() -> None:
    reshaped = [waiting(0, shape="10x100"), waiting(1), waiting(2)]
    scattered = [waiting(rank, op="all_to_all_single", shape=str(rank)) for rank in range(3)]

    assert verdict(reshaped).kind == verdict(scattered).kind == "none_left"


def test_where_all_entered_and_none_left_nobody_is_to_blame() -> None:
    found = verdict([waiting(0), waiting(1), waiting(2)])

    assert (found.kind, found.ranks) == ("none_left", [0, 1, 2])


def test_of_processes_that_are_gone_the_first_is_named() -> None:
    dead = replace(standing(1, 42, 42, state="dead"), died_ns=NOW - 9 * S)
    ended_by_launcher = replace(waiting(2, state="dead"), died_ns=NOW - 2 * S)

    found = verdict([waiting(0, still_s=1), dead, ended_by_launcher])

    assert (found.kind, found.ranks, found.since_ns) == ("process_dead", [1], NOW - 9 * S)


def test_a_stopped_process_needs_no_others_that_wait() -> None:
    running = standing(0, 42, 42, state="running", still_s=None)

    assert verdict([running, standing(1, 42, 42, state="stopped", still_s=3)]).kind == "process_stopped"
    assert is_quiet([running, standing(1, 42, 42, state="stopped", still_s=1)])


def test_a_process_that_runs_no_python_code_is_stuck_sooner_while_others_wait() -> None:
    stuck = standing(1, 42, 42, state="stuck", still_s=8)

    assert verdict([waiting(0, still_s=6), stuck, waiting(2)]).kind == "host_stuck"
    assert is_quiet([standing(0, 42, 42, state="running", still_s=None), stuck])
    assert verdict([stuck], alone_s=7.0).kind == "host_stuck"


def test_waiting_is_no_hang_until_it_has_lasted() -> None:
    late = standing(1, 42, 42, state="running")
    slow = {"0": replace(WORLD["0"], usual_gap_ns=2 * S)}

    assert is_quiet([waiting(0, still_s=4), late, waiting(2)])
    assert is_quiet([waiting(0, 3), standing(1, 2, 2, state="running"), waiting(2, 3)])
    assert verdict([waiting(0, 3, still_s=61), standing(1, 2, 2, state="running"), waiting(2, 3, still_s=61)])
    assert is_quiet([waiting(0), late, waiting(2)], {"0": replace(WORLD["0"], longest_gap_ns=4 * S)})
    assert is_quiet([waiting(0, still_s=None), late, waiting(2)])
    assert is_quiet([waiting(0, still_s=19), late, waiting(2, still_s=19)], slow)
    assert verdict([waiting(0, still_s=21), late, waiting(2, still_s=21)], slow).kind == "rank_missing"


def test_a_rank_that_was_heard_before_the_wait_began_may_have_come_until_it_is_silent_for_long() -> None:
    quiet = standing(1, 42, 42, state="running", heard_s=8)

    assert is_quiet([waiting(0), quiet, waiting(2)])
    found = verdict([waiting(0), quiet, waiting(2)], unheard_s=7.0)
    assert (found.kind, found.ranks) == ("rank_missing", [1])
    assert "nothing was heard of it for long" in found.sentence


def test_a_rank_without_data_is_named_by_the_groups_ranks_alone() -> None:
    found = verdict([waiting(0), waiting(2)])

    assert (found.kind, found.ranks) == ("rank_missing", [1])
    assert "nothing was heard of it" in found.sentence


def test_who_waits_in_another_group_is_held_up_and_no_culprit() -> None:
    groups = {"tp": ProcessGroup("tp", (0, 1), 0), "dp": ProcessGroup("dp", (1, 2), 0)}
    in_both = replace(waiting(1, group="dp"), groups=(InGroup("tp", 44, 44), InGroup("dp", 43, 42, "all_reduce", "8")))
    found = verdict([waiting(0, 45, group="tp"), in_both, standing(2, 42, 42, state="running", group="dp")], groups)

    assert (found.kind, found.ranks, found.group) == ("rank_missing", [2], "dp")


def test_ranks_that_wait_for_each_other_in_two_groups_came_in_different_orders() -> None:
    groups = {name: ProcessGroup(name, (0, 1), 0) for name in "ab"}
    found = verdict([waiting(0, 41, group="a"), waiting(1, 41, group="b")], groups)

    assert (found.kind, found.ranks) == ("order_mismatch", [0, 1])


def test_a_run_that_goes_on_and_one_that_is_over_hang_not() -> None:
    assert is_quiet([standing(rank, 9, 9, state="running", still_s=None) for rank in range(3)])
    assert is_quiet([standing(rank, 9, 9, state="ended", still_s=500) for rank in range(3)])
    assert is_quiet([])


def test_what_is_not_over_can_be_looked_up() -> None:
    assert open_collectives([waiting(0, 5), standing(1, 9, 9), waiting(2, 4, group="dp")]) == [("0", 5), ("dp", 4)]
