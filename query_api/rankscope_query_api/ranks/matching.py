"""The same collective at all its ranks, matched by launch, process group and number: no clock is asked.

Promises: a rank is called missing only where it was heard of well after the others came, and has sent nothing later of
the group; what was only lost on the way, or has not been heard of yet, is told apart from that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rankscope_query_api.meetings import Clocks, Meeting
from rankscope_query_api.ranks.arrivals import Arrival, Match
from rankscope_query_api.values import Record

PATIENCE_NS = 10 * 10**9
"""How long after the others a rank must have been heard of: rows of collectives are sent up to 5 s after they ended."""

_MOST_RANKS = 1 << 20
"""Most ranks that a text may name: it comes from a sender."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of the ranks of a launch beside their arrivals.

    Attributes:
        at_ns: By rank: when its last batch was received, by the receiver's clock.
        passed: By (group, rank): the greatest number that the rank has sent of the group.
    """

    at_ns: Mapping[int, int]
    passed: Mapping[tuple[str, int], int]


def ranks_named(text: str) -> Sequence[int]:
    """The ranks that a text as `0-3,8` names, ascending; none where it is no such text."""
    found = set[int]()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
            return ()
        if not int(first) <= int(last) < _MOST_RANKS:
            return ()
        found.update(range(int(first), int(last) + 1))
    return sorted(found)


def is_complete(meeting: Meeting, sizes: dict[str, int]) -> bool:
    """Whether all ranks of the group have arrived.

    Args:
        meeting: The collective.
        sizes: Remembers how many ranks a text names.
    """
    text = meeting.group_ranks
    if text not in sizes:
        sizes[text] = len(ranks_named(text))
    return 0 < sizes[text] == meeting.ranks


def matched(rows: Sequence[Record], clocks: Clocks, *, heard: Heard) -> list[Match]:
    """The collectives of one launch that rows are of.

    Args:
        rows: Arrivals as `CollectiveReader.arrivals` answers them.
        clocks: Puts their times on one clock.
        heard: What else is known of the ranks.
    """
    key = ("group", "group_ranks", "cseq")
    ordered = sorted(rows, key=lambda row: (*(row[name] for name in key), row["rank"], row["entry"]))
    return [
        _match(found, list(of_it), clocks=clocks, heard=heard)
        for found, of_it in groupby(ordered, key=lambda row: tuple(row[name] for name in key))
    ]


def _match(key: tuple[str, str, int], rows: Sequence[Record], *, clocks: Clocks, heard: Heard) -> Match:
    group, group_ranks, cseq = key
    arrivals = [_arrival(row, clocks) for row in rows]
    here = {one.rank for one in arrivals}
    absent = [rank for rank in ranks_named(group_ranks) if rank not in here]
    missing = [rank for rank in absent if _is_missing(rank, arrivals, of=(group, cseq), heard=heard)]
    return Match(group, group_ranks, cseq, arrivals, missing)


def _arrival(row: Record, clocks: Clocks) -> Arrival:
    """A row as an arrival, its time on the server's clock where the process's was measured."""
    offset, error = clocks.at(row["incarnation_hex"], row["entry"]) or (0, None)
    return Arrival(row["rank"], row["entry"] + offset, error, row["op"])


def _is_missing(rank: int, arrivals: Sequence[Arrival], *, of: tuple[str, int], heard: Heard) -> bool:
    group, cseq = of
    # Times of clocks that were never measured say nothing beside the receiver's.
    known = [one.entry_ns for one in arrivals if one.error_ns is not None]
    since = heard.at_ns.get(rank)
    has_passed = heard.passed.get((group, rank), 0) > cseq
    return bool(known) and since is not None and not has_passed and since > max(known) + PATIENCE_NS
