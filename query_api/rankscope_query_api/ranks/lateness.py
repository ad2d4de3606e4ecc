"""Which spans of one rank's step lie outside the span they are part of. Pure functions, no I/O."""

from collections.abc import Iterable, Sequence

from rankscope_query_api.ranks.clocks import Moment, order


def late_spans(
    edges: Iterable[tuple[int, int]], begun: Sequence[Moment], *, durations_ns: Sequence[int]
) -> frozenset[int]:
    """The spans that begin before their parent, or end after it, by more than their clocks' errors.

    Args:
        edges: Parent and child, as places in the lists.
        begun: When each span began.
        durations_ns: How long each took.
    """

    def ended(span: int) -> Moment:
        one = begun[span]
        return Moment(one.at_ns + durations_ns[span], one.error_ns, one.clock)

    return frozenset(
        child
        for parent, child in edges
        if order(begun[child], begun[parent]) == "before" or order(ended(parent), ended(child)) == "before"
    )
