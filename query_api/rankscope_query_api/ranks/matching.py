"""The same collective at all its ranks, matched by launch, process group and number: no clock is asked.

Promises: a rank is called missing only where it was heard of well after the others came, and has sent nothing later of
the group; what was only lost on the way, or has not been heard of yet, is told apart from that. Operations are held
against each other only where the calls themselves named them: a flight recorder calls a reduce-scatter of gloo an
all-reduce.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rankscope_query_api.meetings import OF_ONE_SIZE, Clocks, Meeting
from rankscope_query_api.ranks.arrivals import Arrival, Match, Mismatch
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
    """The collectives that rows are of.

    Args:
        rows: Arrivals as `CollectiveReader.arrivals` answers them.
        clocks: Puts their times on one clock.
        heard: What else is known of the ranks.
    """
    key = ("launch", "group", "group_ranks", "cseq")
    ordered = sorted(rows, key=lambda row: (*(row[name] for name in key), row["rank"], row["entry"]))
    return [
        _match(found, list(of_it), clocks=clocks, heard=heard)
        for found, of_it in groupby(ordered, key=lambda row: tuple(row[name] for name in key))
    ]


def arrival(row: Record, clocks: Clocks) -> Arrival:
    """A row as an arrival, its times on the server's clock where the process's was measured."""
    incarnation: str = row["incarnation_hex"]
    found = clocks.at(incarnation, row["entry"])
    offset, error = found or (0, None)
    return Arrival(
        rank=row["rank"],
        incarnation=incarnation,
        entry_ns=row["entry"] + offset,
        exit_ns=None if row["exit"] is None else row["exit"] + offset,
        error_ns=error,
        entry_source=row["entry_source"],
        exit_source=row["exit_source"],
        op=row["op"],
        bytes=row["bytes"],
        shape=row["shape"],
        step=row["step"],
    )


def _match(key: tuple[str, str, str, int], rows: Sequence[Record], *, clocks: Clocks, heard: Heard) -> Match:
    launch, group, group_ranks, cseq = key
    arrivals = [arrival(row, clocks) for row in rows]
    ranks = ranks_named(group_ranks)
    here = {one.rank for one in arrivals}
    absent = [rank for rank in ranks if rank not in here]
    missing = [rank for rank in absent if _is_missing(rank, arrivals, of=(group, cseq), heard=heard)]
    return Match(launch, group, ranks, cseq, arrivals, missing, _mismatch(arrivals))


def _is_missing(rank: int, arrivals: Sequence[Arrival], *, of: tuple[str, int], heard: Heard) -> bool:
    group, cseq = of
    # Times of clocks that were never measured say nothing beside the receiver's.
    known = [one.entry_ns for one in arrivals if one.error_ns is not None]
    since = heard.at_ns.get(rank)
    has_passed = heard.passed.get((group, rank), 0) > cseq
    return bool(known) and since is not None and not has_passed and since > max(known) + PATIENCE_NS


def _mismatch(arrivals: Sequence[Arrival]) -> Mismatch:
    if len({one.rank for one in arrivals}) < len(arrivals):
        return "duplicate"
    called = [one for one in arrivals if one.entry_source == "call"]
    if len({one.op for one in called}) > 1:
        return "op"
    return "size" if any(_differ(of_source) for of_source in _by_source(arrivals)) else ""


def _by_source(arrivals: Iterable[Arrival]) -> Iterable[Sequence[Arrival]]:
    found: defaultdict[bool, list[Arrival]] = defaultdict(list)
    for one in arrivals:
        found[one.entry_source == "call"].append(one)
    return found.values()


def _differ(arrivals: Sequence[Arrival]) -> bool:
    return len({one.bytes for one in arrivals if one.op in OF_ONE_SIZE}) > 1
