"""Completion: a query so far and a place in it in, what could be written there out.

Names and words come from the language, keys and values from what is stored. Both are bounded.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from rankscope import tql
from rankscope.tql.completion import Completion, Kind, Suggestion, complete
from rankscope.tql.formatting import field_text, format_value
from rankscope.tql.nodes import FieldRef, Text
from rankscope_query_api.answers import json_answer
from rankscope_query_api.routes.asking import PREFIX, InProject, store_of
from rankscope_query_api.routes.tql import refused
from rankscope_query_api.store import TraceStore
from rankscope_query_api.tql_sql.seen import keys_statement, values_statement

router = APIRouter(prefix=PREFIX, tags=["tql"])

LONGEST = 200
"""Characters of a value; longer ones are texts that nobody completes."""


class CompleteBody(BaseModel):
    """A query so far, and where in it the cursor is."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(description="The text so far, for example `span.kind == `.", max_length=65_536)
    position: int | None = Field(
        default=None, ge=0, le=65_536, description="Offset of the cursor in code points; left out: the end."
    )
    run: str | None = Field(
        default=None, max_length=512, description="The run whose keys and values are meant; left out: all."
    )
    limit: int = Field(default=50, ge=1, le=500, description="Most suggestions.")


@router.post("/tql/complete")
async def complete_tql(request: Request, body: CompleteBody, *, query: Annotated[InProject, Query()]) -> Response:
    """Suggests what could be written at a place of a TQL query: fields, words, functions, keys and values seen."""
    try:
        found = await asyncio.to_thread(complete, body.query, body.position)
    except tql.TqlError as error:
        raise refused(error) from error
    asking = _Asking(store_of(request), query.project, body=body)
    known = (*await asking.keys(found), *await asking.values(found), *found.suggestions)
    return json_answer(
        {
            "start": found.start,
            "end": found.end,
            "items": [{"text": one.text, "kind": one.kind, "detail": one.detail} for one in known[: body.limit]],
            "truncated": len(known) > body.limit,
        }
    )


class _Asking:
    """Asks the store for what only it can tell."""

    def __init__(self, store: TraceStore, project: str, *, body: CompleteBody) -> None:
        self._store = store
        self._project = project
        self._body = body

    async def keys(self, found: Completion) -> Sequence[Suggestion]:
        """The keys that were seen, by name."""
        asked = keys_statement(found.keys_of, project=self._project, run=self._body.run)
        if asked is None:
            return ()
        table = await self._store.query(asked.sql, asked.parameters)
        seen = sorted({key for column in table.columns for keys in column for key in keys if len(key) <= LONGEST})
        written = (field_text(FieldRef(found.keys_of, key)) for key in seen if key.startswith(found.prefix))
        return [Suggestion(text, Kind.KEY) for text in written]

    async def values(self, found: Completion) -> Sequence[Suggestion]:
        """The most frequent values, as a query writes them."""
        if found.values_of is None:
            return ()
        asked = values_statement(
            found.values_of,
            project=self._project,
            run=self._body.run,
            prefix=found.prefix,
            limit=self._body.limit + 1,
        )
        if asked is None:
            return ()
        table = await self._store.query(asked.sql, asked.parameters)
        return list(_texts(table.columns))


def _texts(columns: Sequence[Sequence[object]]) -> Iterator[Suggestion]:
    for text, times in zip(*columns[:2], strict=True) if columns else ():
        if len(str(text)) <= LONGEST:
            yield Suggestion(format_value(Text(str(text))), Kind.VALUE, f"seen {times} times")
