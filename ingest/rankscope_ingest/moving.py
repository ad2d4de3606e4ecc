"""Moves one group from the broker to the store, each batch exactly once.

What may be in the store already is looked for there first. The manifest is kept before the insert,
the insert repeated under its token until it succeeds, the entries are committed after it, the
manifest is forgotten. Killed or frozen at any point, the successor finds the manifest and repeats
the same bytes under the same token, which adds nothing to the tables that have them.

Any failed insert is uncertain and is repeated as it is, for as long as it takes; it is never cut
into smaller ones, because those would have other tokens (tried: 36,300 rows for 18,300). The one
exception is proven: what also `landing_probe` cannot parse has reached no table. A repeated insert
is believed only when every table was seen to have its rows; what one lacks is added.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

from rankscope_ingest import metrics
from rankscope_ingest.clickhouse import VIEWS, Store
from rankscope_ingest.dead_letters import DeadLetter, DeadLetters, Kept, Stage
from rankscope_ingest.entries import Entry, Group, Manifest, Place
from rankscope_ingest.errors import LeaseLost, StoreRefused, StoreUncertain
from rankscope_ingest.patience import patiently
from rankscope_ingest.presence import Expected, Found, Tables, look
from rankscope_ingest.quarantine import Brake, Probe, find_bad, gap_in_place_of
from rankscope_ingest.repair import Workshop, complete
from rankscope_ingest.shards import Shards
from rankscope_proto.failpoints import reach
from rankscope_proto.storage import INSERT_SETTINGS

logger = logging.getLogger(__name__)

QUIET_S = 1.0
"""After which a request that lay in the socket of a store that was stopped is among its inserts, or over.

A writer that was killed leaves such requests. What completes a batch has tokens of its own: it and the request that
came behind it would double rows."""

MOST_TURNS = 3
"""Times that what is lacking is added, each under other tokens: rows that expired already are never there."""

SLOW_INSERT_S = 10.0
"""An insert that takes longer is logged: the store is short of something, or the group is odd."""


class RowSink(Probe, Tables, Workshop, Protocol):
    """Where groups become rows."""

    async def write(
        self, body: bytes, *, token: str, settings: Mapping[str, str | int] | None = None, table: str = "landing"
    ) -> None:
        """Inserts one group; returns only once all of its rows are durable in every table.

        The same body under the same token has no further effect on a table that knows the token; one
        whose store was killed may know it without having the rows. Another body under a token already
        used is dropped silently: a token must follow from the body. The caller never changes, splits
        or reorders a body after an error, unless `probe` refuses it too.

        Raises:
            StoreRefused: Perhaps it cannot be parsed.
            StoreUncertain: The insert failed; it may have happened, whole or in part.
        """
        ...

    async def inserts(self) -> frozenset[str]:
        """Ids of the inserts that run now."""
        ...

    async def views(self) -> frozenset[tuple[str, str]]:
        """The views through which an insert reaches the tables."""
        ...


class Source(Protocol):
    """The broker as moving needs it; `Streams` says what each method promises."""

    async def fetch(self, places: Sequence[Place]) -> list[Entry | None]:
        """Entries by place; None where the broker has none."""
        ...

    async def keep_manifest(
        self, writer: str, group: Group, *, fences: Mapping[int, int], settings: Mapping[str, str | int]
    ) -> None:
        """Keeps what is about to be inserted."""
        ...

    async def manifest(self, shard: int) -> tuple[str, Manifest] | None:
        """The insert begun with entries of a shard, and its writer."""
        ...

    async def commit(self, writer: str, shard: int, *, entries: Sequence[Entry], fence: int) -> int:
        """Forgets durable entries of a shard."""
        ...

    async def forget(self, writer: str, manifest: Manifest | Group) -> None:
        """Forgets a manifest."""
        ...


class Letters(Protocol):
    """Where batches go that cannot be stored; `DeadLetters` says what it promises."""

    async def keep(self, letter: DeadLetter) -> Kept:
        """Keeps a batch."""
        ...


if TYPE_CHECKING:
    from rankscope_ingest.streams import Streams

    _sink: type[RowSink] = Store
    _source: type[Source] = Streams
    _letters: type[Letters] = DeadLetters


class _Poisoned(Exception):  # noqa: N818 # it never leaves this module
    def __init__(self, bad: Sequence[Entry], error: StoreRefused) -> None:
        super().__init__(str(error))
        self.bad = bad
        self.error = error


class Mover:
    """Moves groups.

    Args:
        source: The broker.
        sink: The store.
        letters: Takes what the store cannot parse.
        shards: The leases under which this is done.
    """

    def __init__(self, source: Source, sink: RowSink, *, letters: Letters, shards: Shards) -> None:
        self._source = source
        self._sink = sink
        self._letters = letters
        self._shards = shards
        self._views: frozenset[tuple[str, str]] = frozenset()
        self._brake = Brake()

    async def prepare(self) -> None:
        """Notes the views that stand, so that a change under an insert is seen."""
        self._views = await patiently(self._standing_views)

    async def move(self, group: Group) -> None:
        """Returns once every entry of the group is durable and forgotten, or another writer's to move."""
        reach("writer.after_read")
        fences = self._shards.fences()
        absent = await self._sift([entry for entry in group.entries if entry.place.shard in fences])
        inserted = await self._insert_what_parses(absent, fences)
        await self._commit(group.entries, fences)
        reach("writer.after_commit")
        if inserted.entries:
            await patiently(lambda: self._source.forget(self._shards.writer, inserted))
        reach("writer.after_forget")

    async def settle(self, shard: int) -> None:
        """Finishes the insert that was begun with entries of a shard, if there is one, whoever began it.

        Where an entry of it is gone the insert may have been committed in part, or the broker may have lost
        some: then the same insert cannot be made, and its entries are looked for in the store when they are read.
        """
        fences = self._shards.fences()
        begun = await patiently(lambda: self._source.manifest(shard))
        if begun is None:
            return
        writer, manifest = begun
        found = await patiently(lambda: self._source.fetch(manifest.places))
        entries = [entry for entry in found if entry is not None]
        if len(entries) < len(found):
            return
        logger.info("repeating the insert begun before", extra={"token": manifest.token, "batches": len(found)})
        group = Group(tuple(_as_begun(entry, manifest) for entry in entries))
        try:
            await self._write(group, token=manifest.token, settings=manifest.settings, is_repeated=True)
        except _Poisoned:  # nothing of it is in the store; it is found again when it is read
            return
        await self._commit(entries, fences)
        await patiently(lambda: self._source.forget(writer, manifest))

    async def await_strangers(self) -> None:
        """Returns once no insert runs any more that runs now: one of a writer that ended goes on in the store."""
        begun = await patiently(self._sink.inserts)

        async def have_ended() -> None:
            if begun & await self._sink.inserts():
                raise StoreUncertain("an insert still runs that a writer began which may have ended")

        await patiently(have_ended)

    async def _sift(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those whose rows are not in the store, each batch once; what is there in part is completed."""
        first = {entry.key: entry for entry in reversed(entries)}
        doubtful = [entry for entry in first.values() if entry.again]
        found = await self._found(doubtful)
        if some := [entry for entry in doubtful if found[entry.key] is Found.SOME]:
            await self._make_whole(some)
            found |= dict.fromkeys((entry.key for entry in some), Found.ALL)
        absent = [entry for entry in entries if found.get(entry.key, Found.NONE) is Found.NONE]
        metrics.PRESENT.inc(len(entries) - len(absent))
        return [entry for entry in absent if first[entry.key] is entry]

    async def _found(self, doubtful: Sequence[Entry]) -> dict[tuple[bytes, int], Found]:
        answers = await self._look(doubtful)
        return {entry.key: answer for entry, answer in zip(doubtful, answers, strict=True)}

    async def _make_whole(self, entries: Sequence[Entry]) -> None:
        """Returns once every table has all of some entries, or their shards are another writer's to see to."""
        readable = [entry for entry in entries if Expected.of(entry) is not None]
        if not await self._lacking(readable):
            return
        await asyncio.sleep(QUIET_S)  # what is there in part may be an insert that is not over, or begins only now
        await self.await_strangers()
        for turn in range(1, MOST_TURNS + 1):
            if not (lacking := await self._lacking(readable)):
                return
            await patiently(partial(complete, self._sink, Group(lacking), turn=turn))
        if lacking := await self._lacking(readable):
            facts = {"batches": len(lacking)}
            logger.error("rows vanish when they are stored: are they older than the tables keep them?", extra=facts)

    async def _lacking(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Those under a lease that some table does not have whole."""
        await self._shards.assure(entry.place.shard for entry in entries)
        held = self._shards.fences()
        own = [entry for entry in entries if entry.place.shard in held]
        found = await self._found(own)
        return tuple(entry for entry in own if found[entry.key] is not Found.ALL)

    async def _look(self, doubtful: Sequence[Entry]) -> list[Found]:
        return await patiently(lambda: look(self._sink, doubtful)) if doubtful else []

    async def _insert_what_parses(self, entries: Sequence[Entry], fences: dict[int, int]) -> Group:
        while True:
            try:
                return await self._insert(entries, fences)
            except _Poisoned as poison:
                entries = await self._without_bad(entries, poison)

    async def _insert(self, entries: Sequence[Entry], fences: dict[int, int]) -> Group:
        """Inserts those of the entries that may be under the leases, which it returns."""
        group = await self._begin(entries, fences)
        if group.entries:
            reach("writer.after_manifest")
            await self._shards.assure(group.by_shard())
            held = self._shards.fences()
            if not any(held.get(shard) == fences[shard] for shard in group.by_shard()):
                # The successor finds the manifest, and so late the insert's token may be forgotten.
                for shard in group.by_shard():
                    del fences[shard]
                return Group(())
            await self._write(group, token=group.token, settings=INSERT_SETTINGS)
            reach("writer.after_insert")
        return group

    async def _begin(self, entries: Sequence[Entry], fences: dict[int, int]) -> Group:
        """Keeps the manifest of those of the entries whose shards are still held; drops the others from `fences`."""
        while group := Group(tuple(entry for entry in entries if entry.place.shard in fences)):
            if not group.entries:
                break
            await self._shards.assure(group.by_shard())
            reach("writer.before_manifest")
            try:
                await patiently(lambda group=group: self._keep(group, fences))
                break
            except LeaseLost as lost:
                self._lose(lost, fences)
        return group

    async def _keep(self, group: Group, fences: Mapping[int, int]) -> None:
        await self._source.keep_manifest(self._shards.writer, group, fences=fences, settings=INSERT_SETTINGS)

    def _lose(self, lost: LeaseLost, fences: dict[int, int]) -> None:
        logger.warning("%s; what was read of them is left to it", lost)
        for shard in lost.shards:
            self._shards.lose(shard, fence=fences.pop(shard))

    async def _without_bad(self, entries: Sequence[Entry], poison: _Poisoned) -> list[Entry]:
        """A refused group with gaps in the place of what cannot be parsed, which is kept elsewhere."""
        gaps: dict[Place, Entry | None] = {}
        self._brake.note(bad=len(poison.bad))
        for entry in poison.bad:
            letter = _letter(entry.accepted, poison.error)
            await patiently(lambda letter=letter: self._letters.keep(letter))
            gaps[entry.place] = None if entry.stands_for else gap_in_place_of(entry)
            if gaps[entry.place] is None:
                facts = {"incarnation": entry.accepted.incarnation.hex(), "seq": entry.accepted.seq}
                logger.error("a batch was set aside and no gap can be stated for it", extra=facts)
        replaced = [gaps.get(entry.place, entry) for entry in entries]
        return await self._sift([entry for entry in replaced if entry is not None])

    async def _write(
        self, group: Group, *, token: str, settings: Mapping[str, str | int], is_repeated: bool = False
    ) -> None:
        """Returns once every table has a group.

        A store that is killed in the middle of an insert can know a table's token without having its rows: the
        same insert then does nothing there. So a repeated one is believed only when its rows were seen.
        """
        started = time.monotonic()
        body = await asyncio.to_thread(group.body)
        tries = count()

        async def once() -> int:
            tried = next(tries)
            await self._try(body, group, token=token, settings=settings)
            return tried

        if await patiently(once) or is_repeated:
            await self._make_whole(group.entries)
        await self._have_views_stood(group)
        metrics.INSERT_SECONDS.observe(time.monotonic() - started)
        metrics.GROUP_ROWS.observe(group.rows)
        metrics.ROWS_WRITTEN.inc(group.rows)
        oldest_ms = min((int(entry.place.id.split("-")[0]) for entry in group.entries), default=0)
        metrics.STREAM_LAG.set(max(time.time() - oldest_ms / 1_000, 0))

    async def _try(self, body: bytes, group: Group, *, token: str, settings: Mapping[str, str | int]) -> None:
        started = time.monotonic()
        try:
            reach("writer.during_insert")
            await self._sink.write(body, token=token, settings=settings)
        except OSError as error:
            raise StoreUncertain(f"the insert failed: {error}") from error
        except StoreUncertain as error:
            metrics.INSERTS.labels(error.why).inc()
            raise
        except StoreRefused as error:
            metrics.INSERTS.labels("refused").inc()
            if bad := await find_bad(self._sink, group.entries):
                self._brake.check(len(bad))
                raise _Poisoned(bad, error) from error
            raise StoreUncertain(str(error), number=error.number) from error  # a view's fault
        finally:
            if (took_s := time.monotonic() - started) > SLOW_INSERT_S:
                facts = {"rows": group.rows, "batches": len(group.entries), "payload_bytes": len(body)}
                logger.warning("an insert took %.0f s", took_s, extra=facts)
        metrics.INSERTS.labels("ok").inc()
        self._brake.note(stored=len(group.entries))

    async def _have_views_stood(self, group: Group) -> None:
        """Completes a group that may have missed a table: an insert succeeds also while a view is not there."""
        views = await patiently(self._standing_views)
        before, self._views = self._views, views
        if before and before != views:
            logger.warning("the views of `landing` changed under an insert; its rows are looked for")
            await self._make_whole(group.entries)

    async def _standing_views(self) -> frozenset[tuple[str, str]]:
        views = await self._sink.views()
        if missing := VIEWS - {name for name, _ in views}:
            raise StoreUncertain(f"the view {', '.join(sorted(missing))} is missing: what it fills stays empty")
        return views

    async def _commit(self, entries: Sequence[Entry], fences: dict[int, int]) -> None:
        """Commits what is durable, shard by shard, under the fences it was moved under and no others."""
        for shard, part in Group(tuple(entries)).by_shard().items():
            if shard not in fences:
                continue
            commit = partial(self._source.commit, self._shards.writer, shard, entries=part, fence=fences[shard])
            try:
                _say_set_back(shard, await patiently(commit))
            except LeaseLost as lost:
                self._lose(lost, fences)


def _as_begun(entry: Entry, manifest: Manifest) -> Entry:
    return (gap_in_place_of(entry) or entry) if entry.place in manifest.set_aside else entry


def _letter(entry: Entry, error: StoreRefused) -> DeadLetter:
    return DeadLetter(
        payload=entry.payload,
        incarnation=entry.incarnation,
        seq=entry.seq,
        digest=entry.digest,
        rows=entry.rows,
        week=entry.week,
        expanded=entry.expanded,
        shard=entry.place.shard,
        stage=Stage.PARSE,
        code=error.number,
        detail=str(error),
        at_ms=time.time_ns() // 1_000_000,
    )


def _say_set_back(shard: int, count: int) -> None:
    if count:
        metrics.SET_BACK.inc(count)
        logger.error(
            "entries vanished from the broker before they were stored; their senders are asked for them again",
            extra={"shard": shard, "senders": count},
        )
