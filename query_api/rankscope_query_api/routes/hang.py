"""Whether a run hangs, while it does: the verdict, who waits for whom, and where each process stands."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_proto.names import Phase
from rankscope_query_api.answers import Json, json_answer, moment
from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.ranks.hangs import THRESHOLDS
from rankscope_query_api.ranks.missing import absent_of
from rankscope_query_api.ranks.verdicts import Verdict, named
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launch_named, launches_of, store_of
from rankscope_query_api.rules.hanging import Looked, look
from rankscope_query_api.standing import Standing
from rankscope_query_api.values import Launch, RunKey

router = APIRouter(prefix=PREFIX, tags=["findings"])

_S = 10**9


class HangQuery(InProject):
    """Which launch, judged how."""

    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: the latest.")
    threshold: list[str] = Field(
        default=[], max_length=16, description="`name=value` in place of a default; may be given again."
    )


@router.get("/runs/{run}/hang")
async def show_hang(request: Request, run: Run, *, query: Annotated[HangQuery, Query()]) -> Response:
    """Shows why a run does not go on, as its nodes' agents see it now; `verdict` is null while it does.

    `kind` is rank_missing, order_mismatch, size_mismatch, none_left, process_dead, process_stopped or host_stuck;
    `waiting` are the ranks that wait in the collective named beside it. `processes` says where each rank stands, and
    when it was `heard` of: rows about it come every 5 s. Times are of the store's clock; `as_of` is the latest row's.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    thresholds = _thresholds(query.threshold)
    launches = await launches_of(store, key)
    launch = launch_named(launches, query.launch, among=[one.launch_id for one in launches])
    launch_id = launch.launch_id if launch is not None else ""
    looked = await look(store, key, launch=launch_id, thresholds=thresholds)
    return json_answer(
        {
            "run_id": run,
            "launch_id": launch_id,
            **moment("as_of", max((standing.heard_ns for standing in looked.standings), default=None)),
            "verdict": looked.verdict and verdict_json(looked.verdict),
            "waiting": looked.verdict.waiting if looked.verdict else [],
            "processes": [_process_json(standing) for standing in looked.standings],
            "thresholds": thresholds,
            "warnings": _warnings(looked, launch, thresholds=thresholds),
        }
    )


def verdict_json(verdict: Verdict) -> dict[str, Json]:
    """A verdict for an answer."""
    return {
        "kind": verdict.kind,
        "ranks": verdict.ranks,
        "sentence": verdict.sentence,
        "confidence": verdict.confidence,
        "group": verdict.group,
        "seq": verdict.cseq,
        "op": verdict.op,
        "module": verdict.module,
        "step": verdict.step,
        "phase": Phase.of(verdict.phase),
        **moment("since", verdict.since_ns),
        "stack": _frames(verdict.stack),
        "evidence": verdict.evidence,
    }


def _process_json(standing: Standing) -> dict[str, Json]:
    last = max(standing.groups, key=lambda one: (one.is_under_way, one.enqueued), default=None)
    return {
        "rank": standing.rank,
        "node": standing.node,
        "incarnation": standing.incarnation,
        "state": standing.state,
        **moment("heard", standing.heard_ns),
        **moment("since", standing.since_ns),
        "step": standing.step,
        "phase": Phase.of(standing.phase),
        "group": last.group if last else "",
        "seq": last.enqueued if last else 0,
        "over": last.completed if last else 0,
        "op": last.op if last else "",
        "stack": _frames(standing.stack),
    }


def _frames(stack: str) -> Json:
    """A stack as its agent wrote it; the text where it is no JSON, null where none was taken."""
    try:
        return orjson.loads(stack) if stack else None
    except orjson.JSONDecodeError:
        return stack


def _warnings(looked: Looked, launch: Launch | None, *, thresholds: Mapping[str, float]) -> Sequence[str]:
    if not looked.standings:
        return ["no agent says where this launch's processes stand: it is over for a day, or runs without an agent"]
    told = {standing.rank for standing in looked.standings}
    warnings: list[str] = []
    absent, _ = absent_of(launch.world_size if launch else 0, told)
    if absent:
        warnings.append(f"of {named(absent)} no agent says where it stands")
    unheard = [
        standing.rank
        for standing in looked.standings
        if standing.state not in ("ended", "dead") and looked.now_ns - standing.heard_ns > thresholds["unheard_s"] * _S
    ]
    if unheard:
        warnings.append(f"of {named(unheard)} nothing was heard for more than {thresholds['unheard_s']:g} s")
    return warnings


def _thresholds(given: Sequence[str]) -> Mapping[str, float]:
    found = dict(THRESHOLDS)
    for text in given:
        name, equals, value = text.partition("=")
        try:
            if not equals or name not in found or not 0 <= float(value) <= 86_400:
                raise ValueError(text)
        except ValueError as error:
            raise InvalidRequestError(
                f"threshold is {text!r}", hint="write name=seconds, as in still_s=10", expected=list(THRESHOLDS)
            ) from error
        found[name] = float(value)
    return found
