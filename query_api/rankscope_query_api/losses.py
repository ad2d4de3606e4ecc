"""What was declared lost, against what is there: pure arithmetic on ranges of batch numbers.

A statement of loss that names batches is void for those that are in the ledger after all (sent again, replayed from
quarantine). The same loss may be stated twice, by a process that was killed in between and by its successor, so a
range counts once. What a statement without batches counts (rows dropped before they were in any) always holds.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Range = tuple[int, int]
"""Batch numbers, first and last, both included."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows of one section that one process emitted and that were declared lost.

    Attributes:
        incarnation: Whose rows, 32 hex digits.
        section: In which section; empty: several.
        cause: A word of `GapCause`.
        rows: How many.
        batches: The batches that held them; None: none did yet.
    """

    incarnation: str
    section: str
    cause: str
    rows: int
    batches: Range | None = None


class Arrived:
    """Which batches of one process are in the ledger.

    Args:
        last: The greatest number; -1: none.
        missing: The ranges below it that are not there, ascending.
    """

    def __init__(self, last: int, missing: Sequence[Range]) -> None:
        self.last = last
        self._missing = missing
        self._firsts = [first for first, _ in missing]

    @property
    def missing_count(self) -> int:
        """How many batches below the last are not there."""
        return sum(last - first + 1 for first, last in self._missing)

    def among(self, batches: Range) -> int:
        """How many of these batches are there."""
        first, last = batches[0], min(batches[1], self.last)
        if last < first:
            return 0
        begin = max(0, bisect_right(self._firsts, first) - 1)
        end = bisect_right(self._firsts, last)
        return last - first + 1 - sum(_overlap(hole, (first, last)) for hole in self._missing[begin:end])

    def is_whole(self, batches: Range) -> bool:
        """Whether all of these are there."""
        return self.among(batches) == batches[1] - batches[0] + 1

    def is_partial(self, batches: Range) -> bool:
        """Whether some of these are there, and some are not."""
        return 0 < self.among(batches) < batches[1] - batches[0] + 1

    def unexcused(self, excuses: Iterable[Range]) -> list[Range]:
        """The missing ranges without what these cover."""
        left = list(self._missing)
        for excuse in excuses:
            left = [rest for hole in left for rest in _without(hole, excuse)]
        return left


def distinct(losses: Iterable[Loss]) -> list[Loss]:
    """Each loss once: of statements of one section whose ranges are equal or lie within another, the widest.

    Of equal ones the greatest count holds.
    """
    found: list[Loss] = []
    named: dict[tuple[str, str], list[Loss]] = defaultdict(list)
    for loss in losses:
        if loss.batches is None:
            found.append(loss)
        else:
            named[loss.incarnation, loss.section].append(loss)
    for stated in named.values():
        found.extend(_widest(stated))
    return found


def standing(loss: Loss, arrived: Arrived, *, rows_there: int = 0) -> int:
    """How many rows a statement counts, given what is there.

    Args:
        loss: The statement.
        arrived: The batches of its process.
        rows_there: Rows of its section in those batches of a partial range that are there.
    """
    if loss.batches is None or not arrived.among(loss.batches):
        return loss.rows
    return 0 if arrived.is_whole(loss.batches) else max(0, loss.rows - rows_there)


def by_incarnation(losses: Iterable[Loss]) -> Mapping[str, list[Loss]]:
    """The statements about each process."""
    found: dict[str, list[Loss]] = defaultdict(list)
    for loss in losses:
        found[loss.incarnation].append(loss)
    return found


def _widest(stated: Sequence[Loss]) -> list[Loss]:
    kept: list[Loss] = []
    reach = -1
    for loss in sorted(stated, key=_widest_first):
        if (loss.batches or (0, 0))[1] > reach:
            kept.append(loss)
            reach = (loss.batches or (0, 0))[1]
    return kept


def _widest_first(loss: Loss) -> tuple[int, int, int, str]:
    first, last = loss.batches or (0, 0)
    return first, -last, -loss.rows, loss.cause


def _overlap(one: Range, other: Range) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]) + 1)


def _without(hole: Range, excuse: Range) -> list[Range]:
    if not _overlap(hole, excuse):
        return [hole]
    parts = (hole[0], min(hole[1], excuse[0] - 1)), (max(hole[0], excuse[1] + 1), hole[1])
    return [part for part in parts if part[0] <= part[1]]
