"""Tensor statistics by path, step, rank and role."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_proto.names import Role
from rankscope_query_api.answers import Page, json_answer
from rankscope_query_api.routes.asking import MAX_STEP, PREFIX, Paged, Run, code_named, launches_of, store_of
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import gap_json, tensor_json
from rankscope_query_api.store import TENSOR_KEY
from rankscope_query_api.values import RunKey, TensorFilter

router = APIRouter(prefix=PREFIX, tags=["tensors"])

ROLES = [role.value for role in Role]


class TensorQuery(Paged):
    """Which rows."""

    path: str | None = Field(
        default=None, max_length=4096, description="A tensor's path, or a module's: its tensors and all below it."
    )
    step: int | None = Field(default=None, ge=0, le=MAX_STEP, description="Optimizer step.")
    rank: int | None = Field(default=None, ge=-1, le=2**31 - 1, description="Global rank.")
    role: str | None = Field(default=None, description=f"What the tensor is: {', '.join(ROLES)}.")


@router.get("/runs/{run}/tensors")
async def list_tensors(request: Request, run: Run, *, query: Annotated[TensorQuery, Query()]) -> Response:
    """Lists statistics in the order in which they were produced, as TQL does."""
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    where = TensorFilter(query.path, query.step, query.rank, code_named(ROLES, query.role, parameter="role"))
    listing = listing_of(request, query)
    found = await store.tensors.tensors(key, where, limit=query.limit, after=listing.begin(TENSOR_KEY))
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("tensor_stats",), step=query.step)]
    items = [tensor_json(row) for row in found.items]
    return json_answer(Page(items, found.total, listing.cursor(found.next), gaps=gaps).as_json())
