"""Pages of siblings in a tree that nobody builds: pure functions, no I/O.

A page is asked of the store by (start, span id) and put together here with what the store cannot know: spans that a
living process has open, and the cuts that make a tree of a cycle of parents. Nothing here recurses.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rankscope_query_api.answers import Key
from rankscope_query_api.places import RootCount, SpanPlace


class Siblings(NamedTuple):
    """Some siblings, and whether more come after them."""

    shown: Sequence[SpanPlace]
    next: Key | None


def page_of(stored: Sequence[SpanPlace], extra: Iterable[SpanPlace], *, limit: int, after: Key | None) -> Siblings:
    """The first `limit` siblings after a key, or fewer where rows are copies of one another.

    Args:
        stored: Rows of the stored siblings after the key, ordered, at least one more than `limit` where there are so
            many.
        extra: All other siblings, in any order; one that is among the stored is no other.
        limit: Most siblings of the page.
        after: (start, span id) of the last sibling of the page before.
    """
    known = {one.span_id for one in stored}
    others = [one for one in extra if one.span_id not in known and (after is None or _key(one) > after)]
    found = sorted(dict.fromkeys((*stored, *others)), key=_key)
    if len(stored) > limit:  # behind the last of these rows there may be stored siblings that were not read
        last = _key(stored[-1])
        found = [one for one in found if _key(one) <= last]
        return Siblings(found[:limit], _key(found[limit - 1]) if len(found) > limit else last)
    return Siblings(found[:limit], _key(found[limit - 1]) if len(found) > limit else None)


def count_of(roots: Sequence[SpanPlace]) -> RootCount:
    """How many roots these are, where they are all: rows that repeat a span count once."""
    orphans = {one.span_id for one in roots if one.parent_span_id}
    return RootCount(len({one.span_id for one in roots}), len(orphans))


def cycle_cuts(span_ids: Sequence[int], parents: Sequence[int], *, starts: Sequence[int]) -> Mapping[int, SpanPlace]:
    """The earliest span of each cycle of parents, by its id: cut from its parent, it makes a tree of the cycle.

    Args:
        span_ids: uint64[n], the spans that have children, ordered by (start, span_id); of a repeated id the first
            counts.
        parents: uint64[n], their parents; 0: none.
        starts: int64[n], ns since the epoch.
    """
    places: dict[int, SpanPlace] = {}
    for start, span_id, parent in zip(starts, span_ids, parents, strict=True):
        if span_id not in places:
            places[span_id] = SpanPlace(start, span_id, parent)
    cuts: dict[int, SpanPlace] = {}
    walked: set[int] = set()
    for span_id in places:
        cycle = _cycle_above(span_id, places, walked=walked)
        if cycle:
            cut = min(cycle)
            cuts[cut.span_id] = cut
    return cuts


def _cycle_above(span_id: int, places: Mapping[int, SpanPlace], *, walked: set[int]) -> Sequence[SpanPlace]:
    """The cycle that the way up from a span leads into; nothing where it ends at a root or was walked before."""
    way: list[SpanPlace] = []
    while span_id not in walked and span_id in places:
        walked.add(span_id)
        way.append(places[span_id])
        span_id = places[span_id].parent_span_id
    begin = next((at for at, one in enumerate(way) if one.span_id == span_id), None)
    return [] if begin is None else way[begin:]


def _key(one: SpanPlace) -> tuple[int, int]:
    return one.start_ns, one.span_id
