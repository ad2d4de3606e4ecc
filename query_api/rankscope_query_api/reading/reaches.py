"""How far back the next page of a list probably reaches, by how dense its last page was; a guess, never a promise.

A bound on the start keeps the other columns of a million rows from being read: 5 ms of CPU in place of 20.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope_query_api.reading.latest import Latest

MARGIN = 2
"""Times the span that as many rows took on the last page."""

KEPT = 256
"""Lists that are remembered."""


@dataclass(frozen=True, slots=True)
class _Reach:
    newest_ns: int | None
    ns_a_row: int


class Reaches:
    """What was seen of lists lately."""

    def __init__(self) -> None:
        self._kept = Latest[str, _Reach](KEPT)

    def least_ns(self, asked: str, *, begin_ns: int | None, rows: int) -> int | None:
        """The start that so many rows are probably not before; None: nothing is known.

        Args:
            asked: The list, whichever page.
            begin_ns: The start of the row before the page; None: it is the first page.
            rows: Rows wanted.
        """
        known = self._kept.get(asked)
        if known is None:
            return None
        begin = known.newest_ns if begin_ns is None else begin_ns
        return None if begin is None else begin - MARGIN * rows * known.ns_a_row

    def seen(self, asked: str, starts_ns: Sequence[int], *, is_first: bool) -> None:
        """Notes a page.

        Args:
            asked: The list, whichever page.
            starts_ns: Starts of the rows that were found, at least one, the latest first.
            is_first: Whether it is the first page.
        """
        known = self._kept.get(asked)
        newest = starts_ns[0] if is_first else known and known.newest_ns
        self._kept.put(asked, _Reach(newest, (starts_ns[0] - starts_ns[-1]) // len(starts_ns) + 1))
