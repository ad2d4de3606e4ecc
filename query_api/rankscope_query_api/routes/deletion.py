"""Deleting a run."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_query_api.answers import json_answer
from rankscope_query_api.completeness import still_speaks
from rankscope_query_api.errors import ConflictError
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launches_of, store_of
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["runs"])


class DeletionQuery(InProject):
    """Which run, and whether it may be one that runs."""

    force: bool = Field(default=False, description="Delete it even where a process may still send rows of it.")


@router.delete("/runs/{run}")
async def delete_run(request: Request, run: Run, *, query: Annotated[DeletionQuery, Query()]) -> Response:
    """Deletes a run from every table, for good; where keys are on, this asks for the scope `admin`.

    A run with a process that has not said its last word, and was heard of within 60 s, is refused without `force`: what
    it sends afterwards would be stored again.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    speaking = [entry for entry in await store.ledger.entries(key) if still_speaks(entry)]
    if speaking and not query.force:
        ranks = ", ".join(str(rank) for rank in sorted({entry.rank for entry in speaking})[:8])
        raise ConflictError(
            f"run {run!r} may still be running: rank {ranks} has not said its last word",
            hint="wait until it has ended (or 60 s, if it was killed), or say force (`rankscope rm --force`)",
            code="run_is_running",
        )
    return json_answer({"run_id": run, "project": query.project, "deleted": await store.delete(key)})
