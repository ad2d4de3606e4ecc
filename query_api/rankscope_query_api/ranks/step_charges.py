"""What ranks are charged with at the collectives of one step, by the places of its tree. Pure functions, no I/O."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rankscope_proto.names import Phase
from rankscope_query_api.meetings import Meeting
from rankscope_query_api.ranks.charges import Charge, account
from rankscope_query_api.step_rows import StepCharges


def step_charges(
    meetings: Iterable[Meeting], charges: Iterable[Charge], *, ranks: Sequence[int], step: int
) -> StepCharges | None:
    """What ranks are charged with at a step; None: no collective of it is known, so nothing is.

    Args:
        meetings: Collectives of the step, and of others perhaps.
        charges: Charges at them, with their causes.
        ranks: The rank that each number of `Meeting.key` stands for.
        step: The step.
    """
    here = [meeting for meeting in meetings if meeting.step == step]
    if not here:
        return None
    by_rank: defaultdict[int, int] = defaultdict(int)
    by_path: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for charge in charges:
        if charge.meeting.step != step:
            continue
        rank = ranks[charge.meeting.key]
        by_rank[rank] += charge.wait_ns
        for cause, wait in charge.causes.items():
            if cause in _PHASES:
                by_path[f"step/{cause}"][rank] += wait
    found = account(here)
    return StepCharges(by_rank, by_path, found.received_ns, found.uncertain_ns)


_PHASES = frozenset(phase.value for phase in Phase)
