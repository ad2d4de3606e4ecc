"""The rules that judge a run, with their texts and thresholds, and what each of them found."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
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

MOST_FOUND = 1000
"""Most findings of a rule that its guards look at."""


class RulesQuery(InProject):
    """Which rules, with which thresholds."""

    rule: list[str] = Field(default=[], max_length=64, description="Names of rules; left out: all.")
    threshold: list[str] = Field(
        default=[], max_length=64, description="`rule.threshold=value` in place of a default; may be given again."
    )
    limit: int = Field(default=20, ge=1, le=MOST_FOUND, description="Most findings shown of each rule.")


@router.get("/runs/{run}/rules")
async def list_rules(request: Request, run: Run, *, query: Annotated[RulesQuery, Query()]) -> Response:
    """Lists the rules with the query of each, its thresholds, and what it found in the run.

    `is_judged` is false where the run lacks what the rule is about: it may be ill all the same. Beside `gaps` it may
    be so, too, in the steps that were not captured.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    rules = [rule_named(name) for name in query.rule] or RULES
    given = _given(query.threshold)
    await launches_of(store, key)
    asked = _Run(store, key)
    judged = [await _judged(asked, rule, given=given.get(rule.name, {}), limit=query.limit) for rule in rules]
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


class _Run:
    """Asks one run; a guard of the same steps is asked once."""

    def __init__(self, store: TraceStore, key: RunKey) -> None:
        self._store = store
        self._key = key
        self._known: dict[str, bool] = {}

    async def ask(self, text: str, *, limit: int) -> Page:
        """The first rows of a query's answer, and how many there are."""
        return await answered(self._store, await self._compiled(text, limit=limit))

    async def finds(self, text: str) -> bool:
        """Whether a query has an answer."""
        if text not in self._known:
            compiled = await self._compiled(text, limit=1)
            table = await self._store.query(compiled.sql, compiled.parameters)
            self._known[text] = any(table.columns)
        return self._known[text]

    async def _compiled(self, text: str, *, limit: int) -> Compiled:
        """A query of the run.

        Raises:
            InvalidQueryError: A threshold makes no query of it.
        """
        try:
            query = await asyncio.to_thread(lambda: tql.check(tql.parse(text)))
        except tql.TqlError as error:
            raise refused(error) from error
        return compile_query(query, project=self._key.project, run=self._key.run, limit=limit)

    async def holds(self, rule: Rule, thresholds: Mapping[str, Threshold], *, item: Mapping[str, Any]) -> bool:
        """Whether all guards of a rule hold for what it found."""
        first, last = (max(item.get(name) or 0, 0) for name in ("min", "max"))
        for guard in rule.guards:
            if await self.finds(rule.guard_text(guard, thresholds, first=first, last=last)) is not guard.finds:
                return False
        return True


async def _judged(run: _Run, rule: Rule, *, given: Mapping[str, str], limit: int) -> Json:
    thresholds = rule.with_thresholds(given)
    needs = filled(rule.needs, thresholds) if rule.needs else ""
    is_judged = not needs or await run.finds(needs)
    items, total = list[Json](), 0
    if is_judged:
        page = await run.ask(rule.text(thresholds), limit=MOST_FOUND)
        items = [item for item in page.items if await run.holds(rule, thresholds, item=item)]
        total = len(items) if rule.guards else page.total
    return {
        "name": rule.name,
        "version": rule.version,
        "meaning": rule.meaning,
        "query": rule.text(thresholds),
        "guards": [
            {"query": _for_people(guard.query, thresholds), "finds": guard.finds, "meaning": guard.meaning}
            for guard in rule.guards
        ],
        "needs": needs or None,
        "thresholds": thresholds,
        "is_judged": is_judged,
        "total": total,
        "found": items[:limit],
    }


def _for_people(text: str, thresholds: Mapping[str, Threshold]) -> str:
    """The query of a guard with thresholds, and the words for the steps as they are."""
    return filled(text.replace("{first_step}", "<first>").replace("{last_step}", "<last>"), thresholds)
