"""Who is charged at a collective, why, and who is called a straggler: nobody on a machine that is only loud."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from rankscope.cli._stragglers import where_met
from rankscope_query_api.meetings import Meeting, OwnSpan, Stay
from rankscope_query_api.ranks.charges import Charge, account, explained
from rankscope_query_api.ranks.matching import Heard, matched, ranks_named
from rankscope_query_api.ranks.stragglers import Recurrence, find_stragglers
from rankscope_query_api.values import Record
from tests.query_api.batches import MS, START, S
from tests.query_api.noise import LOUD, Fault, Met, Noise, met, met_at, training

CLOCK_ERROR_NS = MS // 5
QUIET = Noise(sigma=0.05, drift=0.0, spikes=0.0, slow_steps=0.0)


def judged(found: Met, ranks: int = 4) -> Mapping[int, Recurrence]:
    """Who is called a straggler."""
    charges = explained(account(found.meetings).charges, found.spans)
    return find_stragglers(found.meetings, charges, keys=ranks, first=3)


def simulated(seed: int, noise: Noise, /, *faults: Fault, ranks: int = 4, every: int = 1) -> Met:
    """A training on a loud machine whose clocks are off within their error; faults in every k-th step."""
    rows = training(seed, noise=noise, ranks=ranks, steps=60 if every == 1 else 100, faults=faults)
    period = {fault.rank: every for fault in faults}
    return met_at(rows, clock_error_ns=CLOCK_ERROR_NS, seed=seed, period=period)


@pytest.mark.parametrize("noise", LOUD, ids=repr)
def test_nobody_is_accused_in_clean_runs(noise: Noise) -> None:
    accused = [seed for seed in range(10) if judged(simulated(seed, noise))]

    assert not accused


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("noise", LOUD, ids=repr)
def test_of_200_clean_runs_two_are_accused_at_most(noise: Noise, ranks: int) -> None:
    accused = [seed for seed in range(1000, 1200) if judged(simulated(seed, noise, ranks=ranks), ranks)]

    assert len(accused) <= 2


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("noise", LOUD[:2], ids=repr)
def test_a_late_input_is_found_with_its_rank_cause_and_period(noise: Noise, every: int) -> None:
    right = 0
    for seed in range(10):
        rank = random.Random(seed).randrange(4)
        found = judged(simulated(seed, noise, Fault(rank, 0, "input", 80), every=every))
        right += set(found) == {rank} and (found[rank].every, found[rank].cause) == (every, "input")

    assert right >= 9


def test_a_loss_of_two_hundredths_of_a_step_is_found_where_it_is_quiet() -> None:
    quiet = Noise(sigma=0.002, drift=0.0, spikes=0.0, slow_steps=0.0)

    found = judged(simulated(3, quiet, Fault(1, 0, "input", 4)))

    assert set(found) == {1}
    assert found[1].share < 0.1


def test_a_rank_that_recovered_is_not_accused() -> None:
    faulty = [row for row in training(3, noise=QUIET, faults=[Fault(2, 0, "input", 80)]) if row.step < 40]
    clean = [row for row in training(3, noise=QUIET) if row.step >= 40]

    assert not judged(met_at([*faulty, *clean]))


def late(*after_ms: float, step: int = 0, freed: tuple[float, ...] = (), error_ms: float = 0) -> Meeting:
    """A collective to which ranks come so many ms after each was free, or `freed`, of which it is after."""
    begins = freed or (0.0,) * len(after_ms)
    return met(
        step,
        [START + round((begin + after) * MS) for begin, after in zip(begins, after_ms, strict=True)],
        freed=[START + round(begin * MS) for begin in begins],
        error_ns=round(error_ms * MS),
    )


def test_the_last_one_is_charged_with_what_each_of_the_others_waited() -> None:
    found = account([late(5, 35, 10)])

    assert [(charge.meeting.last.rank, charge.wait_ns) for charge in found.charges] == [(1, (30 + 25) * MS)]
    assert found.total_ns == 55 * MS


def test_a_wait_that_was_received_is_charged_to_nobody_a_second_time() -> None:
    # Rank 1 comes 30 ms later, for it was freed 30 ms later: somebody else is charged for that, where it waited.
    found = account([late(5, 5, 5, freed=(0, 30, 0))])

    assert [charge.wait_ns for charge in found.charges] == [0]
    assert found.received_ns == 60 * MS


def test_who_is_last_by_less_than_the_clocks_may_err_is_not_known() -> None:
    found = account([late(5, 35, 34, error_ms=1)])

    assert not found.charges
    assert (found.uncertain_ns, found.reasons) == (31 * MS, {"close": 1})


def test_clocks_that_were_not_measured_leave_what_each_rank_stayed() -> None:
    found = account([replace(late(5, 35, 10), unmeasured=1, stay_ns=55 * MS)])

    assert (found.uncertain_ns, found.reasons, list(found.charges)) == (55 * MS, {"unmeasured": 1}, [])


def caused(*spans: OwnSpan) -> Mapping[str, int]:
    """By what rank 1 is late, in ms: by 40 ms, where the others took 10."""
    [charge] = explained(account([late(10, 50, 10)]).charges, spans)
    assert sum(charge.causes.values()) == charge.wait_ns
    return {cause: spent // MS for cause, spent in charge.causes.items()}


def span(rank: int, cause: str, begin_ms: int, end_ms: int) -> OwnSpan:
    return OwnSpan(str(rank), cause, START + begin_ms * MS, START + end_ms * MS)


def test_causes_are_what_the_last_one_did_longer_than_the_one_in_the_middle() -> None:
    phases = [span(0, "forward", 0, 10), span(1, "input", 0, 30), span(1, "forward", 30, 50)]

    assert caused(*phases) == {"input": 60, "forward": 20}


def test_a_collection_or_a_checkpoint_within_a_phase_counts_for_itself() -> None:
    phases = [
        span(0, "forward", 0, 10),
        span(1, "forward", 0, 50),
        span(1, "gc", 10, 20),
        span(1, "checkpoint", 18, 50),
    ]

    assert caused(*phases) == {"checkpoint": 60, "gc": 20}


def test_what_is_outside_all_phases_is_the_code_of_the_run() -> None:
    assert caused(span(0, "forward", 0, 10), span(1, "forward", 0, 10)) == {"own_code": 80}


def test_a_rank_of_which_nothing_was_traced_is_late_for_an_unknown_cause() -> None:
    assert caused(span(0, "forward", 0, 10)) == {"unknown": 80}
    before = replace(late(10, 50, 10), last=Stay("1", 1, 0, START + 50 * MS))
    [charge] = explained([Charge(before, 80 * MS)], [span(1, "forward", 0, 50)])
    assert charge.causes == {"unknown": 80 * MS}


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("0-3,8", [0, 1, 2, 3, 8]), ("5", [5]), ("", []), ("3-1", []), ("x", []), ("0-99999999999", []), ("-2", [])],
)
def test_ranks_of_a_group_are_read_from_text(text: str, ranks: list[int]) -> None:
    assert list(ranks_named(text)) == ranks


def row(rank: int) -> Record:
    shared = {"group": "0", "group_ranks": "0-2", "cseq": 4, "op": "all_reduce", "entry": START}
    return {**shared, "rank": rank, "incarnation_hex": f"{rank:032x}"}


class Measured:
    """Clocks that are right."""

    def at(self, incarnation: str, wall_ns: int) -> tuple[int, int] | None:
        """No offset, and no error."""
        del incarnation, wall_ns
        return 0, 0


@pytest.mark.parametrize(
    ("heard_s", "passed", "missing"),
    [(20, 0, [2]), (5, 0, []), (20, 5, []), (None, 0, [])],
    ids=["heard since", "heard too early", "its row was lost", "never heard"],
)
def test_a_rank_is_missing_only_where_it_was_heard_of_since(
    heard_s: int | None, passed: int, missing: list[int]
) -> None:
    heard = Heard({} if heard_s is None else {2: START + heard_s * S}, {("0", 2): passed})

    [match] = matched([row(0), row(1)], Measured(), heard=heard)

    assert match.missing == missing


def test_a_collective_outside_of_any_step_is_shown_so() -> None:
    assert [where_met({"step": step}) for step in (None, 0)] == ["outside a step", "step 0"]
