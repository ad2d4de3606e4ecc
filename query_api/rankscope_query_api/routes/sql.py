"""SQL: one SELECT over the views of the contract in, its rows out."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from rankscope_query_api.answers import Json
from rankscope_query_api.encodings import Format, Rows, response, wanted
from rankscope_query_api.errors import RefusedStatementError
from rankscope_query_api.routes.asking import PREFIX, InProject, launches_of, store_of, writing_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.sql.answer import refused, titled, undescribed
from rankscope_query_api.sql.compile import Statement, compile_statement
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey, Table

router = APIRouter(prefix=PREFIX, tags=["sql"])

Gap = Mapping[str, Json]
"""A stated absence."""

ROWS = 1_000
"""Rows of an answer where the request does not say."""


class SqlBody(BaseModel):
    """A statement, its values, and how much of its answer is wanted."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(
        description="One SELECT, for example `SELECT name, count() FROM spans GROUP BY name`.", max_length=65_536
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="The value of each `{name:Type}` in the text, by name.", max_length=100
    )
    run: str | None = Field(default=None, max_length=512, description="The run; left out: all of the project.")
    limit: int = Field(default=ROWS, ge=1, le=100_000, description="Most rows in the answer.")
    format: Format | None = Field(
        default=None, description="`json`, `csv` or `arrow`; left out: what the Accept header asks for, else JSON."
    )


@router.post("/sql")
async def run_sql(request: Request, body: SqlBody, *, query: Annotated[InProject, Query()]) -> Response:
    """Runs one SELECT over the views; query_api/VIEWS.md lists them, their columns and the functions."""
    store = store_of(request)
    if body.run is not None:
        await launches_of(store, RunKey(query.project, body.run))
    statement = await asyncio.to_thread(_compiled, body, query.project)
    # First what costs little: beside the statement it would stand in line for a handle that the statement has.
    gaps = await _gaps(store, statement, project=query.project, run=body.run)
    table = await _asked(store, statement)
    form = wanted(body.format, request.headers.get("accept"))
    return await writing_of(request).written(
        lambda: _answered(titled(statement, table), table, gaps=gaps, limit=body.limit, form=form)
    )


def _compiled(body: SqlBody, project: str) -> Statement:
    return compile_statement(body.query, project=project, run=body.run, given=body.parameters, most_rows=body.limit)


async def _asked(store: TraceStore, statement: Statement) -> Table:
    try:
        table = await store.query(statement.sql, statement.parameters)
        if table.names:
            return table
        # An answer without rows comes without its header.
        return undescribed(await store.query(f"DESCRIBE TABLE ({statement.sql})", statement.parameters))
    except RefusedStatementError as error:
        raise refused(error.said) from error


async def _gaps(store: TraceStore, statement: Statement, *, project: str, run: str | None) -> Sequence[Gap]:
    """The stated absences of rows that it could have read: of its views, at whichever steps, of the run or of each.

    Which steps a statement is about, nothing but its answer says; so the gaps of all of them are told.
    """
    if not statement.sections:
        return ()
    if run is not None:
        return [gap_json(gap) for gap in await store.runs.gaps(RunKey(project, run), sections=statement.sections)]
    found = await store.runs.gaps_of_project(project, sections=statement.sections)
    return [{"run_id": gap["run_id"], **gap_json(gap)} for gap in found]


def _answered(names: Sequence[str], table: Table, *, gaps: Sequence[Gap], limit: int, form: Format) -> Response:
    rows = Rows(names, table.types, [column[:limit] for column in table.columns])
    is_cut = any(len(one) > limit for one in table.columns)
    return response({**_said(rows, is_cut=is_cut), "gaps": gaps}, rows, form=form)


def _said(rows: Rows, *, is_cut: bool) -> dict[str, Json]:
    """The envelope of every list; how many rows there are beyond the limit is not counted."""
    returned = len(rows.columns[0]) if rows.columns else 0
    cut = f"the answer ends at its limit of {returned} rows, and there are more: raise `limit`, or order and continue"
    return {
        "columns": [{"name": name, "type": kind} for name, kind in zip(rows.names, rows.types, strict=True)],
        "items": (),
        "total": None if is_cut else returned,
        "returned": returned,
        "truncated": is_cut,
        "next": None,
        "warnings": [cut] if is_cut else [],
    }
