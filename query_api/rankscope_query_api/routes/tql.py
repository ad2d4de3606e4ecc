"""TQL: a query's text in, a page of rows or counts out."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from rankscope import tql
from rankscope.tql.formatting import field_text
from rankscope.tql.nodes import FieldRef
from rankscope.tql.typed import Across, Aggregate, Key, Stage
from rankscope_query_api.answers import Json, Page
from rankscope_query_api.encodings import Format, Rows, response, wanted
from rankscope_query_api.errors import InvalidQueryError, Position
from rankscope_query_api.routes.asking import PREFIX, InProject, launches_of, store_of, writing_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.store import TraceStore
from rankscope_query_api.tql_sql import DEFAULT_PAGE, Compiled, compile_query
from rankscope_query_api.tql_sql.mentioned import compares_clocks, first_with, keys_in_doubt, sections_of, steps_of
from rankscope_query_api.tql_sql.relations import unmeasured_clocks
from rankscope_query_api.values import Record, RunKey, Table

router = APIRouter(prefix=PREFIX, tags=["tql"])


class TqlBody(BaseModel):
    """A query and the page of its answer that is wanted."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(description="The text, for example `tensor.nonfinite_count > 0 | first`.", max_length=65_536)
    run: str | None = Field(default=None, max_length=512, description="The run; left out: all of the project.")
    limit: int | None = Field(
        default=None, ge=1, le=10_000, description=f"Most items in the answer; left out: {DEFAULT_PAGE}."
    )
    after: str | None = Field(default=None, max_length=4096, description="The `next` of the page before.")
    format: Format | None = Field(
        default=None, description="`json`, `csv` or `arrow`; left out: what the Accept header asks for, else JSON."
    )


@router.post("/tql")
async def run_tql(request: Request, body: TqlBody, *, query: Annotated[InProject, Query()]) -> Response:
    """Runs a TQL query; the rows come in TQL's total order."""
    store = store_of(request)
    # Nearly no run has gaps; whether this one does is asked beside all else, which it costs 2 ms of 25 to wait for.
    (checked, compiled, page), may_have_gaps = await asyncio.gather(
        _first_answered(store, body, project=query.project), _may_have_gaps(store, query.project, run=body.run)
    )
    asked = _Asked(store, checked, project=query.project, run=body.run)
    gaps = await asked.gaps() if may_have_gaps else ()
    if body.run is not None and not (page.items and _are_of_rows(checked)):
        # Looked up only where no row has shown that there is the run: it is a fifth of a short answer's time.
        await launches_of(store, RunKey(query.project, body.run))
    page = replace(page, gaps=gaps)
    if body.after is None:
        page = replace(page, warnings=await asked.warnings(is_empty=page.total == 0))
    form = wanted(body.format, request.headers.get("accept"))
    return await writing_of(request).written(lambda: _written(page, form, keys=compiled.keys))


async def _first_answered(store: TraceStore, body: TqlBody, *, project: str) -> tuple[tql.Typed, Compiled, Page]:
    checked, compiled = await asyncio.to_thread(_compiled, body, project)
    return checked, compiled, await answered(store, compiled)


async def _may_have_gaps(store: TraceStore, project: str, *, run: str | None) -> bool:
    return run is None or await store.runs.has_gaps(RunKey(project, run))


def _are_of_rows(query: tql.Typed) -> bool:
    """Whether an item says that there is a row: of none, an aggregate or a comparison by nothing has an item, too."""
    return not any(_is_by_nothing(stage) for stage in query.stages)


def _is_by_nothing(stage: Stage) -> bool:
    match stage:
        case Aggregate():
            return not stage.by and stage.every is None
        case Across():
            return not stage.by
        case _:
            return False


def _written(page: Page, form: Format, *, keys: Sequence[str]) -> Response:
    """The page in its format; called in a thread, for 10,000 rows take the better part of a second."""
    rows = Rows.of_items(() if form is Format.JSON else page.items, keys)
    return response(page.as_json(), rows, form=form)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query, and what a reader of its answer should know.

    Attributes:
        store: Where it was asked.
        query: The query.
        project: The only project it reads.
        run: The only run it reads; None: all of the project.
    """

    store: TraceStore
    query: tql.Typed
    project: str
    run: str | None

    async def gaps(self) -> Sequence[Mapping[str, Json]]:
        """The stated absences within the steps that are asked about; of a whole project with the run of each."""
        low, high = steps_of(self.query)
        sections, step = sections_of(self.query), low if low == high else None
        if self.run is not None:
            found = await self.store.runs.gaps(RunKey(self.project, self.run), sections=sections, step=step)
            return [gap_json(gap) for gap in found if _touches(gap, low, high=high)]
        found = await self.store.runs.gaps_of_project(self.project, sections=sections, step=step)
        return [{"run_id": gap["run_id"], **gap_json(gap)} for gap in found if _touches(gap, low, high=high)]

    async def warnings(self, *, is_empty: bool) -> Sequence[str]:
        """The keys that it names and that no stored row has, and clocks that it relies on and that nobody measured."""
        keys = await asyncio.to_thread(keys_in_doubt, self.query, is_empty=is_empty)
        seen = await asyncio.gather(*(self._is_seen(key) for key in keys))
        where = "project" if self.run is None else "run"
        names = (
            field_text(FieldRef(key.scope, key.key)) for key, is_seen in zip(keys, seen, strict=True) if not is_seen
        )
        unseen = [f"{name} was never seen in this {where}: nothing that is stored has it" for name in names]
        return [*unseen, *await self._of_clocks()]

    async def _of_clocks(self) -> Sequence[str]:
        if not compares_clocks(self.query):
            return ()
        asked = unmeasured_clocks(project=self.project, run=self.run)
        ((unmeasured,), (processes,)) = (await self.store.query(asked.sql, asked.parameters)).columns
        if not unmeasured:
            return ()
        lacking = f"the clocks of {unmeasured} of {processes} processes were not measured against one server"
        return [f"{lacking}: what they wait for between nodes is missing"]

    async def _is_seen(self, key: Key) -> bool:
        asked = await asyncio.to_thread(first_with, key, project=self.project, run=self.run)
        table = await self.store.query(asked.sql, asked.parameters)
        return bool(table.columns and table.columns[0])


def _touches(gap: Record, low: int, *, high: int) -> bool:
    """Whether a gap may lie within some steps; one that names no step may."""
    first, last = gap["first_step"], gap["last_step"]
    return (first is None or first <= high) and (last is None or last >= low)


def _compiled(body: TqlBody, project: str) -> tuple[tql.Typed, Compiled]:
    """A query, and its SQL.

    Raises:
        InvalidQueryError: The text is no query; the position says where.
        InvalidRequestError: `after` is no cursor of this query.
    """
    try:
        checked = tql.check(tql.parse(body.query))
    except tql.TqlError as error:
        raise refused(error) from error
    return checked, compile_query(
        checked, project=project, run=body.run, limit=body.limit or DEFAULT_PAGE, after=body.after
    )


def refused(error: tql.TqlError) -> InvalidQueryError:
    """What is wrong with a text, as the service says it."""
    return InvalidQueryError(
        error.message,
        hint=error.hint or None,
        position=Position(error.line, error.column, error.length),
        expected=error.expected or None,
        code=error.code,
    )


async def answered(store: TraceStore, compiled: Compiled) -> Page:
    """The page of rows that a compiled query asks for.

    The rows are counted beside it, or only where the page is not the whole answer, if it is likely to be.
    """
    if compiled.is_small:
        table = await _page_of(store, compiled)
        rows = len(table.columns[0]) if table.columns else 0  # of no rows the store names no columns
        count = rows if compiled.is_whole(rows) else await _count_of(store, compiled)
    else:
        count, table = await asyncio.gather(_count_of(store, compiled), _page_of(store, compiled))
    return await asyncio.to_thread(_page, compiled, table.columns, count=count)


async def _page_of(store: TraceStore, compiled: Compiled) -> Table:
    return await store.query(compiled.sql, compiled.parameters)


async def _count_of(store: TraceStore, compiled: Compiled) -> int:
    return int((await store.query(compiled.count_sql, compiled.count_parameters)).columns[0][0])


def _page(compiled: Compiled, columns: Sequence[Sequence[Any]], *, count: int) -> Page:
    rows = list(zip(*columns, strict=True))
    return Page(compiled.items(rows), compiled.total(count), compiled.next(rows, count=count))
