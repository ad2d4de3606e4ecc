"""Watches the runs that go on, while they do: a hang is found when nobody asks.

Every two seconds it looks at the launches that agents tell of, each within its project; a verdict is kept as a finding
and told to the operator's webhook. Promises: one round at a time, each of a bounded number of launches and within a
bounded time, in which those come first whose turn is the longest ago; a launch that cannot be looked at keeps none of
the others from its turn; a finding is told at most once by one service, and by none where another kept it first; a
store that cannot be asked or written costs a line in the log, and never the service.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

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
"""Longest time of a round."""

QUIET_ROUNDS = 60
"""Rounds after which a launch of which no row came is not looked at any more: nothing changes about it."""

MOST_TOLD = 10_000
"""Findings that are remembered as told."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of a launch.

    Attributes:
        told_ns: When its last row was written.
        quiet: Rounds in a row in which nothing new was told of it.
        turn: Number of its last turn; 0: it had none.
    """

    told_ns: int = 0
    quiet: int = 0
    turn: int = 0


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
        self._seen: dict[tuple[RunKey, str], _Seen] = {}
        self._turns = 0
        self._said: set[str] = set()
        self._said_before: set[str] = set()

    async def watch(self) -> None:
        """Looks until it is cancelled."""
        while True:
            self._said_before, self._said = self._said, set()
            try:
                async with asyncio.timeout(MOST_SECONDS):
                    await self.round()
            except (QueryError, TimeoutError) as error:
                self._complain(str(error) or f"a round took more than {MOST_SECONDS:g} s")
            except Exception:  # the service goes on answering, and the next round may do
                logger.exception("a look at the runs that go on failed")
            await asyncio.sleep(self._every_s)

    async def round(self) -> int:
        """Looks once; how many findings were new."""
        launches = await self._store.standing.live(limit=MOST_LAUNCHES)
        self._seen = {(one.key, one.launch): self._seen_now(one) for one in launches}
        new = 0
        for one in sorted(launches, key=lambda live: self._seen[live.key, live.launch].turn):
            seen = self._seen[one.key, one.launch]
            if seen.quiet < QUIET_ROUNDS:
                self._turns += 1
                self._seen[one.key, one.launch] = replace(seen, turn=self._turns)
                new += await self._turn(one)
        return new

    def _seen_now(self, live: LiveLaunch) -> _Seen:
        before = self._seen.get((live.key, live.launch), _Seen())
        return _Seen(live.told_ns, before.quiet + 1 if before.told_ns == live.told_ns else 0, before.turn)

    async def _turn(self, live: LiveLaunch) -> int:
        """Looks at a launch; how many findings were new: none where it cannot be looked at."""
        try:
            return await self._look(live)
        except QueryError as error:
            self._complain(str(error))
        except Exception:  # what is wrong with one project's rows is not the others' doing
            logger.exception("a look at run %s failed", live.key.run, extra={"project": live.key.project})
        return 0

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
        """Says what is wrong, once while each round finds it."""
        if text not in self._said | self._said_before:
            logger.warning("runs that go on are not watched as they should be: %s", text)
        self._said.add(text)


def told_of(finding: Finding) -> Mapping[str, Json]:
    """What leaves the service of a finding: all but the stack, which says more than where it hangs."""
    shown = finding.as_json()
    return {**shown, "evidence": {name: value for name, value in finding.evidence.items() if name != "stack"}}
