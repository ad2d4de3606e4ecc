"""Watches the runs that go on, while they do: a hang is found when nobody asks.

Every two seconds it looks at the launches that agents tell of, each within its project; a verdict is kept as a finding
and told to the operator's webhook. Promises: one round at a time, each of a bounded number of launches and within a
bounded time; a finding is told at most once by one service, and by none where another kept it first; a store that
cannot be asked or written costs a line in the log, and never the service.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping

from rankscope_query_api.answers import Json
from rankscope_query_api.errors import QueryError
from rankscope_query_api.routes.check import keep
from rankscope_query_api.rules.finding import Finding
from rankscope_query_api.rules.hanging import findings_of, look
from rankscope_query_api.standing import LiveLaunch
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey
from rankscope_query_api.webhook import Webhook

logger = logging.getLogger(__name__)

MOST_LAUNCHES = 50
"""Launches that one round looks at, those with the latest rows."""

MOST_SECONDS = 10.0
"""Longest time of a round; launches that had no turn are looked at in the next one, first."""

QUIET_ROUNDS = 60
"""Rounds after which a launch of which no row came is not looked at any more: nothing changes about it."""

MOST_TOLD = 10_000
"""Findings that are remembered as told."""


class Vigil:
    """Looks at live launches.

    Args:
        store: Where they are.
        every_s: Pause between two rounds.
        webhook: Whom findings are told; None: nobody.
    """

    def __init__(self, store: TraceStore, *, every_s: float, webhook: Webhook | None = None) -> None:
        self._store = store
        self._every_s = every_s
        self._webhook = webhook
        self._told: OrderedDict[bytes, None] = OrderedDict()
        self._quiet: dict[tuple[RunKey, str], tuple[int, int]] = {}
        self._complaint = ""

    async def watch(self) -> None:
        """Looks until it is cancelled."""
        while True:
            try:
                async with asyncio.timeout(MOST_SECONDS):
                    await self.round()
                self._complaint = ""
            except (QueryError, TimeoutError) as error:
                self._complain(str(error) or f"a round took more than {MOST_SECONDS:g} s")
            except Exception:
                logger.exception("a look at the runs that go on failed")
            await asyncio.sleep(self._every_s)

    async def round(self) -> int:
        """Looks once; how many findings were new."""
        launches = await self._store.standing.live(limit=MOST_LAUNCHES)
        rounds = {(one.key, one.launch): self._rounds(one) for one in launches}
        self._quiet = {(one.key, one.launch): (one.told_ns, rounds[one.key, one.launch]) for one in launches}
        new = 0
        for one in sorted(launches, key=lambda live: -rounds[live.key, live.launch]):
            if rounds[one.key, one.launch] < QUIET_ROUNDS:
                new += await self._look(one)
        return new

    def _rounds(self, live: LiveLaunch) -> int:
        """Rounds in a row in which nothing new was told of a launch."""
        told_ns, rounds = self._quiet.get((live.key, live.launch), (0, 0))
        return rounds + 1 if told_ns == live.told_ns else 0

    async def _look(self, live: LiveLaunch) -> int:
        looked = await look(self._store, live.key, launch=live.launch)
        new = 0
        for finding in findings_of(looked, live.launch):
            incarnation = finding.incarnation(live.key)
            if incarnation in self._told:
                continue
            is_new = await self._is_new(live.key, finding)
            self._remember(incarnation)
            if is_new:
                new += 1
                logger.warning("run %s: %s", live.key.run, finding.sentence, extra={"project": live.key.project})
                await self._tell(live.key, finding)
        return new

    async def _is_new(self, key: RunKey, finding: Finding) -> bool:
        """Keeps a finding; whether nobody did before. Where it cannot be kept, it is as new as this service knows."""
        try:
            return await keep(self._store, key, finding=finding)
        except QueryError as error:
            self._complain(f"a finding is not kept: {error}")
            return True

    async def _tell(self, key: RunKey, finding: Finding) -> None:
        if self._webhook is None:
            return
        document: Mapping[str, Json] = {"project": key.project, "run_id": key.run, "finding": told_of(finding)}
        await self._webhook.post(document)

    def _remember(self, incarnation: bytes) -> None:
        self._told[incarnation] = None
        if len(self._told) > MOST_TOLD:
            self._told.popitem(last=False)

    def _complain(self, text: str) -> None:
        """Says what is wrong, once while it stays the same."""
        if text != self._complaint:
            self._complaint = text
            logger.warning("runs that go on are not watched as they should be: %s", text)


def told_of(finding: Finding) -> Mapping[str, Json]:
    """What leaves the service of a finding: all but the stack, which says more than where it hangs."""
    shown = finding.as_json()
    return {**shown, "evidence": {name: value for name, value in finding.evidence.items() if name != "stack"}}
