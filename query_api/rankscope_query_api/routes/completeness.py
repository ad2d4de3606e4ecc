"""Whether a run is all there."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from rankscope_query_api.answers import Json, json_answer, moment
from rankscope_query_api.completeness import Completeness, balances, faults, is_silent, said_last_word, state_of
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launches_of, store_of
from rankscope_query_api.values import LedgerEntry, RunKey

router = APIRouter(prefix=PREFIX, tags=["runs"])


@router.get("/runs/{run}/completeness")
async def show_completeness(request: Request, run: Run, *, query: Annotated[InProject, Query()]) -> Response:
    """Compares what was emitted with what is stored and what was declared lost, process by process.

    `state` is `complete`, `so_far`, `unfinished` or `incomplete`: sums know nothing of what a process never sent, so
    only a run of which every process said its last word is complete.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    entries = await store.ledger.entries(key)
    state = state_of(entries)
    return json_answer(
        {
            "run_id": run,
            "state": state,
            "complete": state is Completeness.COMPLETE,
            "ended": all(said_last_word(entry) for entry in entries),
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
            "processes": [_entry_json(entry) for entry in entries],
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
        "ended": said_last_word(entry),
        "last_word": said_last_word(entry),
        **moment("silent_since", entry.heard_ns if is_silent(entry) else None),
        "faults": faults(entry),
    }
