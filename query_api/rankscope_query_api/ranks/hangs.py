"""Whether a run hangs, who keeps it, and in which collective: a pure judge over where its processes stand.

A collective is over when every rank of its group has come. So of ranks that wait, the earliest collective that is not
over names the culprit: the ranks that have not entered it; those that entered it with another operation or size; the
process that died, was stopped, or runs no Python code. Where all have entered the same and none left, nobody is to
blame but what carries the data. A rank that itself waits in another group is no culprit, but held up by that one.

Nothing is judged before its time: waiting is what ranks do. A wait becomes a verdict after `still_s` without progress,
and longer where the group's collectives are usually farther apart or its first ones are still to come; death, a
mismatch and a stopped process need no such doubt. Times are of the store's clock: clocks of nodes are never compared.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_query_api.ranks.mismatches import difference
from rankscope_query_api.ranks.verdicts import Kind, Verdict, sentence_of, telling_frame
from rankscope_query_api.standing import Entered, InGroup, ProcessGroup, Standing

THRESHOLDS: Mapping[str, float] = {
    "still_s": 5.0,
    "times_gap": 10.0,
    "times_longest": 2.0,
    "first": 10.0,
    "first_s": 60.0,
    "stopped_s": 2.0,
    "stuck_s": 5.0,
    "alone_s": 30.0,
    "unheard_s": 15.0,
}
"""still_s: no progress for so long, and times_gap: for so many usual times between collectives of the group, and
times_longest: for so many of the longest ones there were, is a hang; first_s: but of the first so many of a group
(first), while processes still import and compile; stopped_s: a process stopped for so long; stuck_s: one that runs no
Python code while others wait for it, alone_s: while nobody does; unheard_s: of a process whose agent was not heard for
so long nothing is known any more."""

_LONGEST_S = 600.0
"""No wait is longer before it is a verdict, however far apart collectives usually are."""

_SETTLED_NS = 2 * 10**9
"""A row of a rank that runs says nothing of a wait that began less than this before: it may have come meanwhile."""

_DIED_WITH_NS = 2 * 10**9
"""Processes that die within this time died together as far as is known: the agent looks once a second."""

_S = 10**9

_RANK_OF_KIND: Mapping[str, int] = {
    "size_mismatch": 0,
    "order_mismatch": 1,
    "process_dead": 2,
    "process_stopped": 3,
    "host_stuck": 4,
    "rank_missing": 5,
    "none_left": 6,
}
"""Which of several verdicts is the cause: a process that aborts over a size is dead, too."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """The earliest collective of a group that is not over though some of its ranks have entered it.

    Attributes:
        group: The group.
        cseq: Its number.
        members: Where the ranks of the group stand; one of which nothing is known is not there.
        unknown: Ranks of the group of which nothing is known.
        waiting: Those that entered it and have not left.
        absent: Those that have not entered it.
        since_ns: Since when the last of those that wait makes no progress.
        has_lasted: Whether they have waited for long enough to be judged.
    """

    group: str
    cseq: int
    members: Sequence[Standing]
    unknown: Sequence[int]
    waiting: Sequence[Standing]
    absent: Sequence[Standing]
    since_ns: int
    has_lasted: bool


@dataclass(frozen=True, slots=True)
class _Found:
    kind: Kind
    culprits: Sequence[Standing]
    wait: _Wait | None
    since_ns: int
    is_certain: bool
    why: str
    unknown: Sequence[int] = ()


def judge(
    standings: Sequence[Standing],
    groups: Mapping[str, ProcessGroup],
    *,
    entered: Sequence[Entered] = (),
    now_ns: int,
    thresholds: Mapping[str, float] = THRESHOLDS,
) -> Verdict | None:
    """Why a launch does not go on; None: it does, or is over, or nothing can be said yet.

    Args:
        standings: One of each rank of the launch, in any order.
        groups: What is known of the groups, by name.
        entered: Rows of the collectives that are not over, where there are any.
        now_ns: Now, on the clock of the standings.
        thresholds: As `THRESHOLDS`.
    """
    judged = _Judge(standings, groups, entered=entered, now_ns=now_ns, thresholds=thresholds)
    found = judged.found()
    return None if found is None else judged.verdict(found)


def open_collectives(standings: Sequence[Standing]) -> Sequence[tuple[str, int]]:
    """Group and number of the collectives that some rank has entered and not left, for whoever looks up their rows."""
    lasts: dict[str, set[int]] = {}
    for standing in standings:
        for one in standing.groups:
            if one.is_under_way:
                lasts.setdefault(one.group, set()).update((one.completed + 1, one.enqueued))
    return [(group, cseq) for group, found in sorted(lasts.items()) for cseq in sorted(found)]


class _Judge:
    def __init__(
        self,
        standings: Sequence[Standing],
        groups: Mapping[str, ProcessGroup],
        *,
        entered: Sequence[Entered],
        now_ns: int,
        thresholds: Mapping[str, float],
    ) -> None:
        self._standings = sorted(standings, key=lambda standing: standing.rank)
        self._groups = groups
        self._entered = {(one.group, one.cseq, one.rank): one for one in entered}
        self._now_ns = now_ns
        self._limits = {**THRESHOLDS, **thresholds}

    def found(self) -> _Found | None:
        waits = [wait for name in self._names() if (wait := self._wait(name)) is not None]
        found = [one for wait in waits for one in self._of_wait(wait)]
        found += self._of_processes(waits)
        return _cause(found, waits)

    def verdict(self, found: _Found) -> Verdict:
        first = found.culprits[0] if found.culprits else None
        wait = found.wait
        op = self._usual_op(wait) if wait else ""
        waiting = [standing.rank for standing in wait.waiting] if wait else []
        ranks = [standing.rank for standing in found.culprits] or list(found.unknown)
        return Verdict(
            kind=found.kind,
            ranks=ranks,
            group=wait.group if wait else "",
            cseq=wait.cseq if wait else 0,
            op=op,
            step=first.step if first else None,
            phase=first.phase if first else 0,
            module=self._module(wait) if wait else "",
            since_ns=found.since_ns,
            confidence="certain" if found.is_certain else "likely",
            stack=first.stack if first else "",
            sentence=sentence_of(
                found.kind,
                ranks,
                where=_place(wait, op),
                why=_with_frame(found),
                waiting=waiting,
            ),
            waiting=waiting,
            evidence=self._evidence(found),
            thresholds=self._limits,
        )

    def _names(self) -> Sequence[str]:
        return sorted({one.group for standing in self._standings for one in standing.groups if one.is_under_way})

    def _wait(self, name: str) -> _Wait | None:
        known = self._groups.get(name)
        ranks = set(known.ranks) if known and known.ranks else _ranks_in(self._standings, name)
        # An ended one has left nothing open: it is among those that do not come.
        members = [standing for standing in self._standings if standing.rank in ranks]
        # Of one that runs, a row shows a moment only: most of those are over before the row is read.
        still = [one for one in members if one.state != "running" and one.in_group(name).is_under_way]
        cseq = min((standing.in_group(name).completed for standing in still), default=-1) + 1
        inside = [standing for standing in still if _is_inside(standing.in_group(name), cseq)]
        waiting = [standing for standing in inside if standing.state == "waiting"]
        if not inside or any(standing.since_ns is None for standing in waiting):
            return None
        since_ns = max(_still_since(standing) for standing in waiting or inside)
        # A row that none followed shows how far the agent or the store is behind, and not that a rank stands still.
        seen_s = (min((standing.heard_ns for standing in waiting), default=since_ns) - since_ns) / _S
        has_lasted = seen_s >= self._limits["still_s"] and self._age_s(since_ns) >= self._patience_s(known, cseq)
        return _Wait(
            group=name,
            cseq=cseq,
            members=members,
            unknown=sorted(ranks - {standing.rank for standing in members}),
            waiting=waiting,
            absent=[standing for standing in members if standing.in_group(name).enqueued < cseq],
            since_ns=since_ns,
            has_lasted=bool(waiting) and has_lasted,
        )

    def _patience_s(self, known: ProcessGroup | None, cseq: int) -> float:
        """How long a wait for a collective of a group lasts before it is a verdict."""
        usual_s = known.usual_gap_ns / _S if known else 0.0
        longest_s = known.longest_gap_ns / _S if known else 0.0
        limits = self._limits
        first_s = limits["first_s"] if cseq <= limits["first"] else 0.0
        long_s = max(limits["times_gap"] * usual_s, limits["times_longest"] * longest_s)
        return max(limits["still_s"], first_s, min(long_s, _LONGEST_S))

    def _of_wait(self, wait: _Wait) -> Sequence[_Found]:
        """What a wait shows, the process states left aside."""
        mismatch = self._mismatch(wait)
        if mismatch is not None:
            return [mismatch]
        if not wait.has_lasted:
            return []
        absent = [standing for standing in wait.absent if standing.state in ("running", "waiting", "ended")]
        found: list[_Found] = []
        # A rank whose row is older than the wait may have come since; of one that nobody heard for long nobody knows.
        told = [one for one in absent if one.state == "ended" or one.heard_ns >= wait.since_ns + _SETTLED_NS]
        silent = [one for one in absent if one not in told and self._age_s(one.heard_ns) >= self._limits["unheard_s"]]
        if told:
            found.append(_Found("rank_missing", told, wait, wait.since_ns, is_certain=False, why=_why_missing(told)))
        elif silent or wait.unknown:
            why = "nothing was heard of it" if not silent else "nothing was heard of it for long"
            found.append(
                _Found("rank_missing", silent, wait, wait.since_ns, is_certain=False, why=why, unknown=wait.unknown)
            )
        if not wait.absent and not wait.unknown and _all_wait(wait):
            why = "all have entered it, and none has left"
            found.append(_Found("none_left", wait.waiting, wait, wait.since_ns, is_certain=False, why=why))
        return found

    def _of_processes(self, waits: Sequence[_Wait]) -> Sequence[_Found]:
        """What the states of processes show, whoever waits."""
        found: list[_Found] = []
        if dead := _first_dead(self._standings):
            died_ns = min(_died(standing) for standing in dead)
            why = "its process is gone, without its last word"
            found.append(_Found("process_dead", dead, _of(waits, dead), died_ns, is_certain=True, why=why))
        for standing in self._standings:
            if standing.state not in ("stopped", "stuck"):
                continue
            wait = _of(waits, [standing])
            since_ns, seen_s = _still_since(standing), _seen_s(standing)
            if standing.state == "stopped" and seen_s >= self._limits["stopped_s"]:
                why = "its process is stopped by a signal"
                found.append(_Found("process_stopped", [standing], wait, since_ns, is_certain=True, why=why))
            if standing.state == "stuck" and seen_s >= self._limits["stuck_s" if wait else "alone_s"]:
                why = "no Python code runs in it: a call outside Python holds the interpreter"
                found.append(_Found("host_stuck", [standing], wait, since_ns, is_certain=True, why=why))
        return found

    def _mismatch(self, wait: _Wait) -> _Found | None:
        """What does not agree, at the earliest collective where it does not; what is over is told late by recorders."""
        last = {one.in_group(wait.group).enqueued for one in wait.members if one.state != "running"}
        for cseq in sorted({wait.cseq, *(number for number in last if number > wait.cseq)}):
            at = replace(wait, cseq=cseq)
            known = {one.rank: here for one in wait.members if (here := self._entered_at(one, at)) is not None}
            if differs := difference(known):
                culprits = [standing for standing in wait.members if standing.rank in differs.ranks]
                return _Found(differs.kind, culprits, at, wait.since_ns, is_certain=True, why=differs.said)
        return None

    def _entered_at(self, standing: Standing, wait: _Wait) -> InGroup | None:
        """What a rank entered as the wait's collective; None: nothing, or not known."""
        one = standing.in_group(wait.group)
        if one.enqueued == wait.cseq:
            return one
        row = self._entered.get((wait.group, wait.cseq, standing.rank))
        return None if row is None else InGroup(row.group, row.cseq, row.cseq - 1, row.op, row.shape)

    def _usual_op(self, wait: _Wait) -> str:
        ops = Counter(
            one.op for standing in wait.waiting if (one := self._entered_at(standing, wait)) is not None and one.op
        )
        return ops.most_common(1)[0][0] if ops else ""

    def _module(self, wait: _Wait) -> str:
        rows = (self._entered.get((wait.group, wait.cseq, standing.rank)) for standing in wait.members)
        return next((row.module for row in rows if row is not None and row.module), "")

    def _evidence(self, found: _Found) -> Mapping[str, str | int | Sequence[int]]:
        evidence: dict[str, str | int | Sequence[int]] = {"why": found.why}
        if found.culprits and (frame := telling_frame(found.culprits[0].stack)):
            evidence["frame"] = frame
        if found.wait is not None:
            evidence["waiting"] = [standing.rank for standing in found.wait.waiting]
            evidence["not_entered"] = [standing.rank for standing in found.wait.absent]
            evidence["unknown"] = list(found.wait.unknown)
            evidence["last_entered"] = [one.in_group(found.wait.group).enqueued for one in found.culprits]
        return evidence

    def _age_s(self, since_ns: int) -> float:
        return (self._now_ns - since_ns) / _S


def _with_frame(found: _Found) -> str:
    """Why it is so, and in which frame the culprit is, where that says more than who waits."""
    frame = telling_frame(found.culprits[0].stack) if len(found.culprits) == 1 else ""
    return f"{found.why}; it is in {frame}" if frame and found.kind in ("rank_missing", "host_stuck") else found.why


def _place(wait: _Wait | None, op: str) -> str:
    return f"{op or 'collective'} #{wait.cseq} of group {wait.group}" if wait else ""


def _ranks_in(standings: Sequence[Standing], group: str) -> set[int]:
    return {standing.rank for standing in standings if any(one.group == group for one in standing.groups)}


def _is_inside(one: InGroup, cseq: int) -> bool:
    return one.enqueued >= cseq > one.completed


def _still_since(standing: Standing) -> int:
    return standing.heard_ns if standing.since_ns is None else standing.since_ns


def _seen_s(standing: Standing) -> float:
    """For how long its last row saw it so: how old that row is tells how far the agent or the store is behind."""
    return (standing.heard_ns - _still_since(standing)) / _S


def _all_wait(wait: _Wait) -> bool:
    """Whether every rank that is in it is there to wait: not those that are dead, stopped or stuck."""
    inside = [standing for standing in wait.members if _is_inside(standing.in_group(wait.group), wait.cseq)]
    return len(inside) == len(wait.waiting)


def _why_missing(absent: Sequence[Standing]) -> str:
    if all(standing.state == "ended" for standing in absent):
        return "it has ended" if len(absent) == 1 else "they have ended"
    return "it has not entered it" if len(absent) == 1 else "they have not entered it"


def _died(standing: Standing) -> int:
    return standing.heard_ns if standing.died_ns is None else standing.died_ns


def _first_dead(standings: Sequence[Standing]) -> Sequence[Standing]:
    """Those that died first: a launcher ends the others after that."""
    dead = [standing for standing in standings if standing.state == "dead"]
    first = min(map(_died, dead), default=0)
    return [standing for standing in dead if _died(standing) <= first + _DIED_WITH_NS]


def _of(waits: Sequence[_Wait], culprits: Sequence[Standing]) -> _Wait | None:
    """The first wait that one of these could be the reason of."""
    ranks = {standing.rank for standing in culprits}
    concerned = [wait for wait in waits if ranks & {standing.rank for standing in wait.members}]
    return min(concerned, key=lambda wait: wait.since_ns, default=None)


def _cause(found: Sequence[_Found], waits: Sequence[_Wait]) -> _Found | None:
    """The one that explains the others."""
    held_up = {standing.rank for wait in waits if wait.has_lasted for standing in wait.waiting}
    own = [
        one
        for one in found
        if one.kind != "rank_missing" or not one.culprits or any(held.rank not in held_up for held in one.culprits)
    ]
    if found and not own:
        return _crossed(found)
    best = min(own, key=lambda one: (_RANK_OF_KIND[one.kind], one.since_ns), default=None)
    if best is None or best.kind != "rank_missing":
        return best
    return replace(best, culprits=[one for one in best.culprits if one.rank not in held_up])


def _crossed(found: Sequence[_Found]) -> _Found:
    """Each waits for another in another group: they came to their groups in different orders."""
    first = min(found, key=lambda one: one.since_ns)
    culprits = {standing.rank: standing for one in found for standing in one.culprits}
    groups = ", ".join(sorted({one.wait.group for one in found if one.wait}))
    why = f"each waits for another in another group ({groups})"
    return _Found(
        "order_mismatch",
        [culprits[rank] for rank in sorted(culprits)],
        first.wait,
        first.since_ns,
        False,
        why,
    )
