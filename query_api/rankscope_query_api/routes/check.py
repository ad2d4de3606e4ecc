"""Judges a run by rules and keeps what they found: the one route beside deletion that writes."""

import asyncio
import logging
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from rankscope_proto.names import Severity
from rankscope_query_api.access import may_keep
from rankscope_query_api.answers import Json, conventional, json_answer
from rankscope_query_api.errors import QueryError
from rankscope_query_api.keeping import KeptFinding
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launch_named, launches_of, store_of
from rankscope_query_api.routes.judging import Judging
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.routes.rules import MOST_SECONDS, described, thresholds_of
from rankscope_query_api.rules import RULES, rule_named
from rankscope_query_api.rules.finding import Finding
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey

logger = logging.getLogger(__name__)

router = APIRouter(prefix=PREFIX, tags=["findings"])

MOST_KEPT = 100
"""Most findings of a rule that one check judges and keeps."""

MOST_PAYLOAD = 64 * 1024
"""Bytes of a finding beyond which its evidence is left out of what is kept."""


class CheckBody(BaseModel):
    """Which rules, with which thresholds."""

    model_config = ConfigDict(extra="forbid")

    rules: list[Annotated[str, Field(max_length=64)]] = Field(
        default=[], max_length=64, description="Names of rules; left out: all."
    )
    thresholds: list[Annotated[str, Field(max_length=512)]] = Field(
        default=[], max_length=64, description="`rule.threshold=value` in place of a default."
    )
    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: the latest.")


@router.post("/runs/{run}/check")
async def check_run(request: Request, run: Run, *, query: Annotated[InProject, Query()], body: CheckBody) -> Response:
    """Judges a run by rules and keeps what they find, each finding once however often it is found.

    `findings` say whether each is `stored`, and whether it is `new`. They are kept where no keys are on, or where the
    key has the scope `ingest` or `admin`; else, or where the store refuses, `stored` is false and `why_not_stored`
    says why. `has_fired` is true where one of them is more than info; `rules` say which rules did not judge the run.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    rules = [rule_named(name) for name in body.rules] or RULES
    thresholds = thresholds_of(rules, body.thresholds)
    launches = await launches_of(store, key)
    launch = launch_named(launches, body.launch, among=[one.launch_id for one in launches]) or launches[-1]
    judging, end = Judging(store, key, launch=launch), asyncio.get_running_loop().time() + MOST_SECONDS
    findings, told = list[Finding](), list[Json]()
    for rule in rules:
        own = thresholds[rule.name]
        judged = await judging.judged(rule, own, end=end, limit=MOST_KEPT)
        findings += judged.findings
        told.append({**described(rule, own), **judged.as_json(), "found": len(judged.findings)})
    kept = [await _kept(store, key, finding=finding, may=may_keep(request)) for finding in findings]
    gaps = await store.runs.gaps(key, sections=())
    return json_answer(
        {
            "run_id": run,
            "launch_id": launch.launch_id,
            "has_fired": any(finding.severity != "info" for finding in findings),
            "findings": kept,
            "rules": told,
            "gaps": [gap_json(gap) for gap in gaps],
        }
    )


async def _kept(store: TraceStore, key: RunKey, *, finding: Finding, may: bool) -> dict[str, Json]:
    shown: dict[str, Json] = {**finding.as_json(), "stored": False, "new": None, "why_not_stored": None}
    if not may:
        return {**shown, "why_not_stored": "the key may not write: it has neither the scope ingest nor admin"}
    try:
        is_new = await keep(store, key, finding=finding)
    except QueryError as error:
        logger.warning("a finding is not kept: %s", error, extra={"rule": finding.rule, "code": error.code})
        return {**shown, "why_not_stored": "the store did not take it"}
    return {**shown, "stored": True, "new": is_new}


async def keep(store: TraceStore, key: RunKey, *, finding: Finding) -> bool:
    """Keeps a finding; whether it is new.

    Raises:
        QueryError: The store does not take it.
    """
    incarnation = finding.incarnation(key)
    return await store.findings.keep(
        key,
        KeptFinding(
            incarnation=incarnation,
            launch=finding.launch,
            rule=finding.rule,
            severity=Severity(finding.severity).code,
            step=finding.step,
            time_ns=finding.first_ns or finding.last_ns,
            payload=_payload(finding),
        ),
    )


def _payload(finding: Finding) -> str:
    payload = orjson.dumps(conventional(finding.as_json()))
    if len(payload) > MOST_PAYLOAD:
        payload = orjson.dumps(conventional({**finding.as_json(), "evidence": {}}))
    return payload.decode()
