"""Judges one run by rules: asks their queries and guards, or has their judges look; what it found as findings."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope import tql
from rankscope_query_api.answers import Json, Page
from rankscope_query_api.routes.judges import JUDGES
from rankscope_query_api.routes.tql import answered, refused
from rankscope_query_api.rules import Rule
from rankscope_query_api.rules.catalog import Threshold, filled
from rankscope_query_api.rules.finding import Finding
from rankscope_query_api.store import TraceStore
from rankscope_query_api.tql_sql import Compiled, compile_query
from rankscope_query_api.values import Launch, RunKey

MOST_GUARDED = 50
"""Most findings of a rule that its guards are asked about: each may take a query a guard."""

_LACKS_DATA, _OUT_OF_TIME = "lacks_data", "out_of_time"
"""Why a rule did not judge a run."""

_SAYS_WHICH = ("rank", "step", "name", "module", "layer_index")
"""Columns of a row that tell what was found from what else was found by the same rule."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a rule says of a run.

    Attributes:
        found: The first of what it found, as the rows of its query or as findings.
        findings: The same as findings.
        total: All that it found, or at least so much.
        is_total_exact: Whether it is all.
        why_not: Why it did not judge the run; None: it did.
    """

    found: Sequence[Json] = ()
    findings: Sequence[Finding] = ()
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


class Judging:
    """Judges one run; what was asked of it once is remembered.

    Args:
        store: Where it is.
        key: The run.
        launch: The launch that judges look at, and that findings are of; queries ask the whole run.
    """

    def __init__(self, store: TraceStore, key: RunKey, *, launch: Launch) -> None:
        self._store = store
        self._key = key
        self._launch = launch
        self._known: dict[str, bool] = {}
        self._pages: dict[tuple[str, int], Page] = {}

    async def judged(self, rule: Rule, thresholds: Mapping[str, Threshold], *, end: float, limit: int) -> Judged:
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
                if rule.judge:
                    return await self._looked(rule, thresholds, limit=limit)
                if rule.needs and not await self._finds(filled(rule.needs, thresholds)):
                    return Judged(is_total_exact=False, why_not=_LACKS_DATA)
                if not rule.guards:
                    page = await self._ask(rule.text(thresholds), limit=limit)
                    return self._of_rows(rule, thresholds, rows=page.items, total=page.total)
                return await self._guarded(rule, thresholds, limit=limit)
        except TimeoutError:
            return Judged(is_total_exact=False, why_not=_OUT_OF_TIME)

    async def _looked(self, rule: Rule, thresholds: Mapping[str, Threshold], *, limit: int) -> Judged:
        findings = await JUDGES[rule.judge](self._store, self._key, self._launch, thresholds)
        if findings is None:
            return Judged(is_total_exact=False, why_not=_LACKS_DATA)
        return Judged([one.as_json() for one in findings[:limit]], findings[:limit], len(findings))

    async def _guarded(self, rule: Rule, thresholds: Mapping[str, Threshold], *, limit: int) -> Judged:
        page = await self._ask(rule.text(thresholds), limit=MOST_GUARDED)
        found = [item for item in page.items if await self._holds(rule, thresholds, finding=item)]
        is_exact = page.total <= len(page.items)
        return self._of_rows(rule, thresholds, rows=found[:limit], total=len(found), is_total_exact=is_exact)

    def _of_rows(
        self,
        rule: Rule,
        thresholds: Mapping[str, Threshold],
        *,
        rows: Sequence[Mapping[str, Json]],
        total: int,
        is_total_exact: bool = True,
    ) -> Judged:
        findings = [_finding(rule, thresholds, row=row, launch=self._launch) for row in rows]
        return Judged(rows, findings, total, is_total_exact)

    async def _holds(self, rule: Rule, thresholds: Mapping[str, Threshold], *, finding: Mapping[str, Any]) -> bool:
        """Whether all guards of a rule hold for what it found; one that cannot be asked about it does."""
        for guard in rule.guards:
            text = rule.guard_text(guard, thresholds, finding=finding)
            if text is not None and await self._finds(text) is not guard.finds:
                return False
        return True

    async def _ask(self, text: str, *, limit: int) -> Page:
        """The first rows of a query's answer, and how many there are; two rules may ask one query."""
        if (text, limit) not in self._pages:
            self._pages[text, limit] = await answered(self._store, await self._compiled(text, limit=limit))
        return self._pages[text, limit]

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


def _finding(rule: Rule, thresholds: Mapping[str, Threshold], *, row: Mapping[str, Any], launch: Launch) -> Finding:
    """A row that a rule's query found."""
    which = {name: row[name] for name in _SAYS_WHICH if row.get(name) is not None}
    step = row.get("step", row.get("min"))
    last = row.get("max")
    until = f", steps {step} to {last}" if last is not None else ""
    place = ", ".join(f"{name} {value}" for name, value in which.items())
    return Finding(
        rule=rule.name,
        version=rule.version,
        severity=rule.severity,
        launch=str(row.get("launch_id") or launch.launch_id),
        step=step,
        rank=row.get("rank"),
        subject=place,
        sentence=f"{rule.meaning.removesuffix('.')}: {place}{until}",
        evidence=dict(row),
        thresholds=thresholds,
        last_ns=launch.updated_ns,
    )
