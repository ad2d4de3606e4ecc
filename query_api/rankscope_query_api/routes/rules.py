"""The rules that judge a run, with their texts and thresholds, and what each of them found."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope import tql
from rankscope_query_api.answers import Json, Page, json_answer
from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launches_of, store_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.routes.tql import answered, refused
from rankscope_query_api.rules import RULES, Rule, rule_named
from rankscope_query_api.rules.catalog import Threshold, filled
from rankscope_query_api.store import TraceStore
from rankscope_query_api.tql_sql import Compiled, compile_query
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["findings"])

MOST_SHOWN = 1000
"""Most findings that are shown of a rule."""

MOST_GUARDED = 50
"""Most findings of a rule that its guards are asked about: each may take a query a guard."""

MOST_SECONDS = 60.0
"""Longest time that rules are asked; those that had no turn, or did not end, are told to be not judged."""

_LACKS_DATA, _OUT_OF_TIME = "lacks_data", "out_of_time"
"""Why a rule did not judge a run."""


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

    `is_judged` is false where the run lacks what the rule is about, or where the rules before it took the time there
    is (`why_not` says which): it may be ill all the same. Beside `gaps` it may be so, too, in the steps that were not
    captured. `total` is at least so many where `is_total_exact` is false: guards are asked about the first findings.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    rules = [rule_named(name) for name in query.rule] or RULES
    given = _given(query.threshold)
    thresholds = {rule.name: rule.with_thresholds(given.get(rule.name, {})) for rule in rules}
    await launches_of(store, key)
    asked, end = _Run(store, key), asyncio.get_running_loop().time() + MOST_SECONDS
    judged = list[Json]()
    for rule in rules:
        own = thresholds[rule.name]
        verdict = await asked.judged(rule, own, end=end, limit=query.limit)
        judged.append({**_described(rule, own), **verdict.as_json()})
    gaps = await store.runs.gaps(key, sections=("tensor_stats", "scalars"))
    return json_answer({"run_id": run, "rules": judged, "gaps": [gap_json(gap) for gap in gaps]})


def _given(texts: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for text in texts:
        name, equals, value = text.partition("=")
        rule, dot, threshold = name.partition(".")
        if not (equals and dot):
            raise InvalidRequestError(f"threshold is {text!r}", hint="write rule.threshold=value, as in exploding.z=30")
        found[rule_named(rule).name][threshold] = value
    return found


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What a rule says of a run.

    Attributes:
        found: The first of what it found.
        total: All that it found, or at least so much.
        is_total_exact: Whether it is all.
        why_not: Why it did not judge the run; None: it did.
    """

    found: Sequence[Json] = ()
    total: int = 0
    is_total_exact: bool = True
    why_not: str | None = None

    def as_json(self) -> dict[str, Json]:
        """For the answer."""
        return {
            "is_judged": self.why_not is None,
            "why_not": self.why_not,
            "total": self.total,
            "is_total_exact": self.is_total_exact,
            "found": self.found,
        }


class _Run:
    """Judges one run; what was asked of it once is remembered."""

    def __init__(self, store: TraceStore, key: RunKey) -> None:
        self._store = store
        self._key = key
        self._known: dict[str, bool] = {}

    async def judged(self, rule: Rule, thresholds: Mapping[str, Threshold], *, end: float, limit: int) -> _Verdict:
        """What a rule says of the run.

        Args:
            rule: Which.
            thresholds: Of it, all.
            end: On the loop's clock, when it is given up.
            limit: Most findings that are wanted.

        Raises:
            InvalidQueryError: A threshold makes no query of it.
        """
        try:
            async with asyncio.timeout_at(end):
                if rule.needs and not await self._finds(filled(rule.needs, thresholds)):
                    return _Verdict(is_total_exact=False, why_not=_LACKS_DATA)
                if not rule.guards:
                    page = await self._ask(rule.text(thresholds), limit=limit)
                    return _Verdict(page.items, page.total)
                return await self._guarded(rule, thresholds, limit=limit)
        except TimeoutError:
            return _Verdict(is_total_exact=False, why_not=_OUT_OF_TIME)

    async def _guarded(self, rule: Rule, thresholds: Mapping[str, Threshold], *, limit: int) -> _Verdict:
        page = await self._ask(rule.text(thresholds), limit=MOST_GUARDED)
        found = [item for item in page.items if await self._holds(rule, thresholds, finding=item)]
        return _Verdict(found[:limit], len(found), is_total_exact=page.total <= len(page.items))

    async def _holds(self, rule: Rule, thresholds: Mapping[str, Threshold], *, finding: Mapping[str, Any]) -> bool:
        """Whether all guards of a rule hold for what it found; one that cannot be asked about it does."""
        for guard in rule.guards:
            text = rule.guard_text(guard, thresholds, finding=finding)
            if text is not None and await self._finds(text) is not guard.finds:
                return False
        return True

    async def _ask(self, text: str, *, limit: int) -> Page:
        """The first rows of a query's answer, and how many there are."""
        return await answered(self._store, await self._compiled(text, limit=limit))

    async def _finds(self, text: str) -> bool:
        """Whether a query has an answer."""
        if text not in self._known:
            compiled = await self._compiled(text, limit=1)
            table = await self._store.query(compiled.sql, compiled.parameters)
            self._known[text] = any(table.columns)
        return self._known[text]

    async def _compiled(self, text: str, *, limit: int) -> Compiled:
        try:
            query = await asyncio.to_thread(lambda: tql.check(tql.parse(text)))
        except tql.TqlError as error:
            raise refused(error) from error
        return compile_query(query, project=self._key.project, run=self._key.run, limit=limit)


def _described(rule: Rule, thresholds: Mapping[str, Threshold]) -> dict[str, Json]:
    """A rule as whoever asks may read, change and ask it."""
    return {
        "name": rule.name,
        "version": rule.version,
        "meaning": rule.meaning,
        "query": rule.text(thresholds),
        "guards": [
            {"query": rule.guard_for_people(guard, thresholds), "finds": guard.finds, "meaning": guard.meaning}
            for guard in rule.guards
        ],
        "needs": filled(rule.needs, thresholds) if rule.needs else None,
        "thresholds": thresholds,
    }
