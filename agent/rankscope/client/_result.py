"""The rows of an answer, a page at a time as they are come to; what the answer says beside them is there at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rankscope.client import _html
from rankscope.client._values import arrow_stream, arrow_table, decoded, decoded_as, package
from rankscope.up import Json

Row: TypeAlias = dict[str, Any]
"""One row: values by name; times as ISO-8601 beside `_ns`, whole numbers of ns; a missing value is None or absent."""


class Result:
    """The answer to a query: iterate over it for all rows, over all pages.

    Attributes:
        total: rows there are over all pages; None: a SELECT's answer was cut, and nobody counted on.
        warnings: what a reader of the rows should know.
        gaps: stated absences inside what was asked for: no row may mean that nobody looked.
    """

    def __init__(self, fetch: Callable[[str | None], Json], *, arrow: Callable[[], bytes] | None = None) -> None:
        """Reads the first page.

        Args:
            fetch: reads the page behind a cursor; None: the first.
            arrow: reads the whole answer as an Arrow stream; None: it is made of the rows.
        """
        self._fetch = fetch
        self._arrow = arrow
        self._rows: list[Row] = []
        first = fetch(None)
        self._types: dict[str, str] = {one["name"]: one["type"] for one in first.get("columns") or ()}
        self.total: int | None = first["total"]
        self.warnings: Sequence[str] = tuple(first.get("warnings") or ())
        self.gaps: Sequence[Mapping[str, Any]] = tuple(first.get("gaps") or ())
        self._next: str | None = None
        self._is_cut = False
        self._take(first)

    def _take(self, page: Json) -> None:
        items: Sequence[Mapping[str, Any]] = page["items"]
        self._rows += [decoded_as(item, self._types) if self._types else decoded(item) for item in items]
        self._next = page.get("next")
        self._is_cut = bool(page.get("truncated"))

    def __iter__(self) -> Iterator[Row]:
        """Every row, in the order of the answer; further pages are read when they are come to."""
        at = 0
        while True:
            while at < len(self._rows):
                yield self._rows[at]
                at += 1
            if self._next is None:
                return
            self._take(self._fetch(self._next))

    @property
    def rows(self) -> list[Row]:
        """All rows, read to the end; where there may be very many, iterate, or end the query with `| limit n`."""
        return list(self)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, of the rows read so far where the answer does not state them."""
        return tuple(self._types) or tuple(dict.fromkeys(name for row in self._rows for name in row))

    @property
    def returned(self) -> int:
        """Rows that were read so far."""
        return len(self._rows)

    @property
    def truncated(self) -> bool:
        """Whether there are more rows than were read so far."""
        return self._is_cut

    def to_arrow(self) -> Any:
        """All rows as a `pyarrow.Table`. Of a SELECT, with the types of its columns; it is asked again for that.

        Raises:
            MissingPackageError: pyarrow is not installed.
        """
        if self._arrow is not None:
            package("pyarrow", wanted="to_arrow()")
            return arrow_stream(self._arrow())
        rows = self.rows
        return arrow_table(rows, self.columns)

    def to_pandas(self) -> Any:
        """All rows as a `pandas.DataFrame`; whole numbers stay whole where some are missing.

        Raises:
            MissingPackageError: pandas or pyarrow is not installed.
        """
        package("pandas", wanted="to_pandas()")
        return self.to_arrow().to_pandas(integer_object_nulls=True)

    def _notes(self) -> Iterator[str]:
        yield self._told(min(len(self._rows), _html.ROWS))
        yield from (f"warning: {warning}" for warning in self.warnings)
        if self.gaps:
            causes = ", ".join(sorted({str(gap["cause"]) for gap in self.gaps}))
            yield f"rows are absent inside what was asked for ({causes}): see gaps"

    def _told(self, shown: int) -> str:
        return f"{shown} rows, and there are more" if self.total is None else f"{shown} of {self.total} rows"

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, escaped."""
        return _html.table(self._rows, self.columns, notes=self._notes())

    def __repr__(self) -> str:
        """How many rows of how many, and of which columns."""
        return f"<Result: {self._told(self.returned)}; {', '.join(self.columns)}>"
