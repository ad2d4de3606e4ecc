"""`rankscope tail`: the latest rows of a query, and with `-f` those that come, until Ctrl-C.

Rows come late and in any order: a span is there when it has ended, ranks are not equally fast. So the latest rows by
their own time are asked for again and again, and those that were not there before are shown. What comes later than
`WINDOW` newer rows is passed over; where a whole window is new, that is said.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Protocol

import typer

from rankscope import tql as language
from rankscope.cli._app import app
from rankscope.cli._columns import laid_out
from rankscope.cli._errors import WrongCallError
from rankscope.cli._output import await_reader, say, say_aside
from rankscope.cli._read import Run, text_of
from rankscope.cli._source import AsJson, Home, Project, Source, Url
from rankscope.cli._table import BETWEEN, cell, fitting, say_left_out
from rankscope.client import Asking, QueryRefusedError, padded, width_of
from rankscope.tql.nodes import Query, Where
from rankscope.up import Json, UnreachableError

WINDOW = 1_000
"""Rows that are asked for each time."""

PASSING = frozenset({429, 502, 503, 504})
"""HTTP statuses of a service that may answer the next time: it is busy, its store is away, or it starts anew."""

Row = Mapping[str, Any]


@app.command("tail", short_help="The latest rows of a TQL query, and with -f those that come.")
def tail(  # noqa: PLR0913 - one for each option
    tql: Annotated[str, typer.Argument(metavar="TQL", help="A query of rows; - reads it from stdin.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with the rows that come, until Ctrl-C.")
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=WINDOW, help="Rows to begin with.")] = 10,
    every: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between two looks.")] = 1.0,
    run: Run = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """The latest rows of a query by their time, and with -f the new ones as they come; --json: one document a row.

    With -f a service that does not answer for a while is asked until it does.

    Example: rankscope tail 'span.status == "error"' -f --run demo-1
    """
    text = text_of(tql)
    asked = by_time(text)
    with Source(home, url, project).client() as client:
        watched = Watched(Asking(client, project, run), asked)
        shown = _Lines(text, as_json=as_json)
        latest = watched.new()
        shown.say(latest[len(latest) - min(lines, len(latest)) :])
        while follow:
            await_reader(every)
            shown.say(watched.new_if_answered())


def by_time(text: str) -> str:
    """The query whose first page is the latest rows of a query.

    Raises:
        TqlError: the text is no query.
        WrongCallError: it asks for something else than stored rows.
    """
    query = language.parse(text)
    other = [stage for stage in query.stages if not isinstance(stage, Where)]
    if other:
        raise WrongCallError(
            "tail follows rows as they are stored: a query with no stage but `where`",
            hint="leave out the others; a table shows first what the query names",
        )
    ordered = language.parse("rank == 0 | order by time desc")
    latest: Query = dataclasses.replace(query, stages=(*query.stages, *ordered.stages))
    return language.format(latest)


class Answers(Protocol):
    """Who answers a query."""

    def tql(self, text: str, *, limit: int | None = None, after: str | None = None) -> Json:
        """A page of its answer, as `Asking` gives it."""
        ...


class Watched:
    """A query that is asked again and again.

    Args:
        asking: whom it is asked of.
        text: the query, the latest rows first.
    """

    def __init__(self, asking: Answers, text: str) -> None:
        self._asking = asking
        self._text = text
        self._seen: frozenset[str] | None = None
        self._is_away = False

    def new(self) -> list[Row]:
        """The rows that the last look did not see, in the order of their time."""
        items: Sequence[Row] = self._asking.tql(self._text, limit=WINDOW)["items"]
        found = {json.dumps(item, sort_keys=True): item for item in items}
        seen = self._seen
        self._seen = frozenset(found)
        if seen is None:
            return list(reversed(found.values()))
        fresh = [item for key, item in found.items() if key not in seen]
        if len(fresh) == WINDOW:
            say_aside(f"more than {WINDOW} rows came between two looks: some are not shown")
        return fresh[::-1]

    def new_if_answered(self) -> list[Row]:
        """As `new`; none where the service does not answer just now, and it is said once that it does not.

        Raises:
            QueryRefusedError: It refuses the query, and would do so again.
        """
        try:
            fresh = self.new()
        except (UnreachableError, QueryRefusedError) as error:
            if isinstance(error, QueryRefusedError) and error.status not in PASSING:
                raise
            if not self._is_away:
                say_aside(f"{error}; asked again until it answers")
            self._is_away = True
            return []
        self._is_away = False
        return fresh


class _Lines:
    """Rows as lines: JSON documents, or a table whose columns stay as the first rows make them."""

    def __init__(self, query: str, *, as_json: bool) -> None:
        self._query = query
        self._as_json = as_json
        self._widths: dict[str, int] = {}

    def say(self, rows: Sequence[Row]) -> None:
        """Shows rows."""
        for line in self._json(rows) if self._as_json else self._table(rows):
            say(line)

    def _json(self, rows: Sequence[Row]) -> Iterator[str]:
        return (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)

    def _table(self, rows: Sequence[Row]) -> Iterator[str]:
        shown, columns = laid_out(rows, self._query)
        if rows and not self._widths:
            cells = {name: [name, *(cell(row.get(name)) for row in shown)] for name in columns}
            widths = {name: max(map(width_of, texts)) for name, texts in cells.items()}
            room = fitting(list(widths.values()))
            self._widths = dict(list(widths.items())[:room])
            say_left_out(columns[room:])
            yield self._line({name: name for name in columns})
        yield from map(self._line, shown)

    def _line(self, row: Row) -> str:
        cells = (padded(cell(row.get(name)), width) for name, width in self._widths.items())
        return (" " * BETWEEN).join(cells).rstrip()
