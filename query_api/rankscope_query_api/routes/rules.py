"""The rules that judge a run, with their texts and thresholds, and what each of them found."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_query_api.answers import Json, json_answer
from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launches_of, store_of
from rankscope_query_api.routes.judging import Judging
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.rules import RULES, Rule, rule_named
from rankscope_query_api.rules.catalog import Threshold, filled
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["findings"])

MOST_SHOWN = 1000
"""Most findings that are shown of a rule."""

MOST_SECONDS = 60.0
"""Longest time that rules are asked; those that had no turn, or did not end, are told to be not judged."""


class RulesQuery(InProject):
    """Which rules, with which thresholds."""

    rule: list[str] = Field(default=[], max_length=64, description="Names of rules; left out: all.")
    threshold: list[str] = Field(
        default=[], max_length=64, description="`rule.threshold=value` in place of a default; may be given again."
    )
    limit: int = Field(default=20, ge=1, le=MOST_SHOWN, description="Most findings shown of each rule.")


@router.get("/runs/{run}/rules")
async def list_rules(request: Request, run: Run, *, query: Annotated[RulesQuery, Query()]) -> Response:
    """Lists the rules with the query of each, its thresholds, and what it found in the run.

    `query` is null for a rule that a judge of the service judges by (`judge`), of the latest launch. `noise_budget`
    says how often a rule found something in clean runs.

    `is_judged` is false where the run lacks what the rule is about, or where the rules before it took the time there
    is (`why_not` says which): it may be ill all the same. Beside `gaps` it may be so, too, in the steps that were not
    captured. `total` is at least so many where `is_total_exact` is false: guards are asked about the first findings.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    rules = [rule_named(name) for name in query.rule] or RULES
    thresholds = thresholds_of(rules, query.threshold)
    launches = await launches_of(store, key)
    asked, end = Judging(store, key, launch=launches[-1]), asyncio.get_running_loop().time() + MOST_SECONDS
    judged = list[Json]()
    for rule in rules:
        own = thresholds[rule.name]
        verdict = await asked.judged(rule, own, end=end, limit=query.limit)
        judged.append({**described(rule, own), **verdict.as_json()})
    gaps = await store.runs.gaps(key, sections=("tensor_stats", "scalars"))
    return json_answer({"run_id": run, "rules": judged, "gaps": [gap_json(gap) for gap in gaps]})


def thresholds_of(rules: Sequence[Rule], texts: Sequence[str]) -> Mapping[str, Mapping[str, Threshold]]:
    """The thresholds of these rules by name, with those that are given as `rule.threshold=value`.

    Raises:
        InvalidRequestError: There is no such rule or threshold, or the value is of another kind.
    """
    given = _given(texts)
    return {rule.name: rule.with_thresholds(given.get(rule.name, {})) for rule in rules}


def _given(texts: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for text in texts:
        name, equals, value = text.partition("=")
        rule, dot, threshold = name.partition(".")
        if not (equals and dot):
            raise InvalidRequestError(f"threshold is {text!r}", hint="write rule.threshold=value, as in exploding.z=30")
        found[rule_named(rule).name][threshold] = value
    return found


def described(rule: Rule, thresholds: Mapping[str, Threshold]) -> dict[str, Json]:
    """A rule as whoever asks may read, change and ask it."""
    return {
        "name": rule.name,
        "version": rule.version,
        "severity": rule.severity,
        "meaning": rule.meaning,
        "noise_budget": rule.noise_budget,
        "judge": rule.judge or None,
        "query": rule.text(thresholds) if rule.query else None,
        "guards": [
            {"query": rule.guard_for_people(guard, thresholds), "finds": guard.finds, "meaning": guard.meaning}
            for guard in rule.guards
        ],
        "needs": filled(rule.needs, thresholds) if rule.needs else None,
        "thresholds": thresholds,
    }
