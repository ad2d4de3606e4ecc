"""The firings of breakpoints, with what their conditions saw."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope import tql
from rankscope.tql.formatting import format_value
from rankscope.tql.nodes import Text
from rankscope_query_api.answers import json_answer
from rankscope_query_api.routes.asking import MAX_STEP, PREFIX, Paged, Run, launches_of, store_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.routes.tql import answered
from rankscope_query_api.tql_sql import compile_query
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["tensors"])


class HitsQuery(Paged):
    """Which hits."""

    breakpoint: str | None = Field(default=None, max_length=512, description="Name of the breakpoint.")
    path: str | None = Field(default=None, max_length=2048, description="Path of the tensor it fired on.")
    step: int | None = Field(default=None, ge=0, le=MAX_STEP, description="Optimizer step.")
    rank: int | None = Field(default=None, ge=-1, le=2**31 - 1, description="Global rank.")

    def tql(self) -> str:
        """The query that a reader can ask, too."""
        texts = {"hit.breakpoint": self.breakpoint, "hit.name": self.path}
        asked = [f"{field} == {format_value(Text(text))}" for field, text in texts.items() if text is not None]
        asked += [
            f"{field} == {number}" for field, number in (("step", self.step), ("rank", self.rank)) if number is not None
        ]
        return " and ".join(["exists(hit.breakpoint)", *asked])


@router.get("/runs/{run}/hits")
async def list_hits(request: Request, run: Run, *, query: Annotated[HitsQuery, Query()]) -> Response:
    """Lists the firings of breakpoints in the order of TQL, as the query beside them does."""
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    text = query.tql()
    compiled = compile_query(
        tql.check(tql.parse(text)), project=key.project, run=key.run, limit=query.limit, after=query.after
    )
    page = await answered(store, compiled)
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("hits",), step=query.step)]
    return json_answer({**page.as_json(), "gaps": gaps, "query": text})
