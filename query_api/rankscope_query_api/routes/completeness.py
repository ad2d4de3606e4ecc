"""Whether a run is all there."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from rankscope_query_api.answers import Json, json_answer
from rankscope_query_api.completeness import balances, faults
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launches_of, store_of
from rankscope_query_api.values import LedgerEntry, RunKey

router = APIRouter(prefix=PREFIX, tags=["runs"])


@router.get("/runs/{run}/completeness")
async def show_completeness(request: Request, run: Run, *, query: Annotated[InProject, Query()]) -> Response:
    """Compares what was emitted with what is stored and what was declared lost, process by process."""
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    entries = await store.ledger.entries(key)
    processes = [_entry_json(entry) for entry in entries]
    return json_answer(
        {
            "run_id": run,
            "complete": not any(process["faults"] for process in processes),
            "ended": all(entry.ended for entry in entries),
            "sections": [
                {
                    "section": balance.section,
                    "emitted": balance.emitted,
                    "stored": balance.stored,
                    "lost": balance.lost,
                    "missing": balance.missing,
                }
                for balance in balances(entries)
            ],
            "processes": processes,
        }
    )


def _entry_json(entry: LedgerEntry) -> dict[str, Json]:
    return {
        "incarnation": entry.incarnation,
        "launch_id": entry.launch_id,
        "rank": entry.rank,
        "process_role": entry.process_role,
        "batches": entry.batches,
        "last_seq": entry.last_seq,
        "missing_seqs": [[first, last] for first, last in entry.missing],
        "ended": entry.ended,
        "faults": faults(entry),
    }
