"""TQL: a query's text in, a page of rows or counts out."""

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from rankscope import tql
from rankscope.tql.fields import SECTION, Entity
from rankscope_query_api.answers import Page
from rankscope_query_api.encodings import Format, Rows, response, wanted
from rankscope_query_api.errors import InvalidQueryError, Position
from rankscope_query_api.routes.asking import PREFIX, InProject, launches_of, store_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.store import TraceStore
from rankscope_query_api.tql_sql import Compiled, compile_query
from rankscope_query_api.values import Record, RunKey

router = APIRouter(prefix=PREFIX, tags=["tql"])


class TqlBody(BaseModel):
    """A query and the page of its answer that is wanted."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(description="The text, for example `tensor.nonfinite_count > 0 | first`.", max_length=65_536)
    run: str | None = Field(default=None, max_length=512, description="The run; left out: all of the project.")
    limit: int | None = Field(default=None, ge=1, le=10_000, description="Most items in the answer; left out: 100.")
    after: str | None = Field(default=None, max_length=4096, description="The `next` of the page before.")
    format: Format | None = Field(
        default=None, description="`json`, `csv` or `arrow`; left out: what the Accept header asks for, else JSON."
    )


@router.post("/tql")
async def run_tql(request: Request, body: TqlBody, *, query: Annotated[InProject, Query()]) -> Response:
    """Runs a TQL query; the rows come in TQL's total order."""
    store = store_of(request)
    if body.run is not None:
        await launches_of(store, RunKey(query.project, body.run))
    compiled = await asyncio.to_thread(compiled_query, body, query.project)
    page = await answered(store, compiled)
    if body.run is not None:
        gaps = await store.runs.gaps(RunKey(query.project, body.run), sections=_sections(compiled.entity))
        page = replace(page, gaps=[gap_json(gap) for gap in gaps])
    form = wanted(body.format, request.headers.get("accept"))
    return response(page.as_json(), Rows.of_items(page.items), form=form)


def _sections(entity: Entity) -> tuple[str, ...]:
    """Whose gaps could have held rows of the entity; none named: all."""
    if entity in SECTION:
        return (SECTION[entity].name,)
    return (SECTION[Entity.SPAN].name,) if entity is Entity.TRACE else ()


def compiled_query(body: TqlBody, project: str) -> Compiled:
    """The SQL of a query.

    Raises:
        InvalidQueryError: The text is no query; the position says where.
        InvalidRequestError: `after` is no cursor of this query.
    """
    try:
        checked = tql.check(tql.parse(body.query))
    except tql.TqlError as error:
        raise refused(error) from error
    return compile_query(checked, project=project, run=body.run, limit=body.limit or 100, after=body.after)


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
    """The page of rows that a compiled query asks for."""
    counted = await store.query(compiled.count_sql, compiled.count_parameters)
    count: int = counted.columns[0][0]
    table = await store.query(compiled.sql, compiled.parameters)
    rows = list(zip(*table.columns, strict=True))
    items: list[Record] = compiled.items(rows)
    return Page(items, compiled.total(count), compiled.next(rows, count=count))
