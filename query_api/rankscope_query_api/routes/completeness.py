"""Whether a run is all there."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from rankscope_query_api.answers import Json, json_answer, moment
from rankscope_query_api.completeness import (
    RANGES_SHOWN,
    Completeness,
    balances,
    faults,
    is_silent,
    said_last_word,
    state_of,
)
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launches_of, store_of
from rankscope_query_api.values import Launch, LedgerEntry, RunKey

router = APIRouter(prefix=PREFIX, tags=["runs"])


@router.get("/runs/{run}/completeness")
async def show_completeness(request: Request, run: Run, *, query: Annotated[InProject, Query()]) -> Response:
    """Compares what was emitted with what is stored and what was declared lost: of the run, each launch, each process.

    `state` is `complete`, `so_far`, `unfinished` or `incomplete`: sums know nothing of what a process never sent, so
    only a run of which every process said its last word is complete.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    entries = await store.ledger.entries(key)
    state = state_of(entries)
    return json_answer(
        {
            "run_id": run,
            "state": state,
            "complete": state is Completeness.COMPLETE,
            "ended": all(said_last_word(entry) for entry in entries),
            "sections": _sections_json(entries),
            "launches": [
                _launch_json(launch, [entry for entry in entries if entry.launch_id == launch.launch_id])
                for launch in launches
            ],
            "processes": [_entry_json(entry) for entry in entries],
        }
    )


def _sections_json(entries: Sequence[LedgerEntry]) -> list[Json]:
    return [
        {
            "section": balance.section,
            "emitted": balance.emitted,
            "stored": balance.stored,
            "lost": balance.lost,
            "lost_by_cause": balance.causes,
            "missing": balance.missing,
        }
        for balance in balances(entries)
    ]


def _launch_json(launch: Launch, entries: Sequence[LedgerEntry]) -> dict[str, Json]:
    state = state_of(entries)
    return {
        "launch_id": launch.launch_id,
        "attempt": launch.attempt,
        "state": state,
        "complete": state is Completeness.COMPLETE,
        "sections": _sections_json(entries),
    }


def _entry_json(entry: LedgerEntry) -> dict[str, Json]:
    return {
        "incarnation": entry.incarnation,
        "launch_id": entry.launch_id,
        "rank": entry.rank,
        "process_role": entry.process_role,
        "batches": entry.batches,
        "last_seq": entry.last_seq,
        "missing_seqs": [[first, last] for first, last in entry.missing[:RANGES_SHOWN]],
        "lost_batches": entry.excused,
        "sections": _sections_json([entry]),
        "ended": said_last_word(entry),
        "last_word": said_last_word(entry),
        **moment("silent_since", entry.heard_ns if is_silent(entry) else None),
        "faults": faults(entry),
    }
