"""Explanation: a TQL query in, the SQL that answers it out, and what that reads; nothing is run."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from rankscope import tql
from rankscope_query_api.answers import Json, json_answer
from rankscope_query_api.routes.asking import PREFIX, InProject
from rankscope_query_api.routes.tql import refused
from rankscope_query_api.tql_sql import compile_query
from rankscope_query_api.tql_sql.explain import joins_of
from rankscope_query_api.tql_sql.layout import laid_out

router = APIRouter(prefix=PREFIX, tags=["tql"])


class ExplainBody(BaseModel):
    """A query, and the run it would be asked of."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(description="The text, for example `tensor.nonfinite_count > 0 | first`.", max_length=65_536)
    run: str | None = Field(default=None, max_length=512, description="The run; left out: all of the project.")


@router.post("/tql/explain")
async def explain_tql(body: ExplainBody, *, query: Annotated[InProject, Query()]) -> Response:
    """Explains a TQL query: its text as the formatter writes it, what its rows are, its SQL, what is joined."""
    try:
        return json_answer(await asyncio.to_thread(_explained, body, query.project))
    except tql.TqlError as error:
        raise refused(error) from error


def _explained(body: ExplainBody, project: str) -> dict[str, Json]:
    tree = tql.parse(body.query)
    typed = tql.check(tree)
    compiled = compile_query(typed, project=project, run=body.run)
    return {
        "text": tql.format(tree),
        "entity": compiled.entity,
        "columns": compiled.keys,
        "joins": joins_of(typed),
        "sql": laid_out(compiled.sql),
        "parameters": compiled.parameters,
        "count_sql": laid_out(compiled.count_sql),
    }
