"""Takes requests and writes spans: the whole of the front, but for HTTP. One thread uses it.

Promises: a request is taken whole or not at all; its answer is given again for the same key and body, also after a
restart; every span that was begun is written exactly once, with what is known of it when its closing event and all
before it came, when stragglers have had their time, or as interrupted when nothing was heard of it for a day.
"""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import orjson

from rankscope._bounds import PATH
from rankscope._clock import Clock
from rankscope.front import events
from rankscope.front.beats import heartbeat
from rankscope.front.book import KEPT_NS, Answer, Book, Kept, RunName, State
from rankscope.front.errors import ConflictError, FrontError, InvalidRequestError
from rankscope.front.events import Event, Request
from rankscope.front.halves import Half
from rankscope.front.masking import masked
from rankscope.front.outbox import MOST_STREAMS, Outbox
from rankscope.front.paths import placed
from rankscope.privacy import Redactor
from rankscope.spool import SpoolError
from rankscope_proto.failpoints import reach

logger = logging.getLogger(__name__)

S_NS = 10**9
STRAGGLERS_NS = 10 * S_NS
"""How long a closed span waits for events that came before its end and are not here yet."""

IDLE_NS = 60 * S_NS
"""How long a run's stream goes on without an event and without an open span."""

BEAT_NS = 5 * S_NS
SOON_NS = S_NS
"""How often what is open is said: always, and where something changed."""

FORGET_NS = 60 * S_NS
RETRY_NS = S_NS
BATCH_ROWS = 2_000
BATCH_TEXT = 2 * 1024 * 1024
"""Characters of kept spans, and the most their paths may take, that go into a batch: half of what a batch may have."""

SHORTER_NS = 23 * 3600 * S_NS
"""How much earlier answers and written spans are forgotten while the book is half full."""

MOST_KEY_BYTES = 200
NAMED = 5
"""Names that a warning tells."""


@dataclass(slots=True)
class _Taken:
    """What came of a request's events.

    Attributes:
        inserted: Events that were new.
        late: Events of spans that were written before.
        traces: Hex ids of the traces concerned.
    """

    inserted: int = 0
    late: int = 0
    traces: set[str] = field(default_factory=set[str])


class Desk:
    """Takes requests and writes spans.

    Args:
        book: What is kept.
        outbox: Where batches go.
        redactor: Takes secrets out of everything before it is kept.
        clock: Time.
    """

    def __init__(self, book: Book, outbox: Outbox, *, redactor: Redactor, clock: Clock) -> None:
        self._book = book
        self._outbox = outbox
        self._redactor = redactor
        self._clock = clock
        self._beat_at = self._beaten_ns = self._forget_at = 0
        self._told: set[int] = set()

    def accept(self, name: RunName, key: str, body: bytes, /) -> bytes:
        """Take a request.

        Args:
            name: The run its events are about.
            key: Its idempotency key, which `checked_key` let pass.
            body: As it came.

        Returns:
            The answer, JSON; it is given once everything is on the disk.

        Raises:
            InvalidRequestError: an event cannot be meant; nothing of the request was kept.
            ConflictError: the key belongs to another body.
            UnavailableError: it cannot be kept now.
        """
        document = events.parsed(body)
        digest = _digest(events.canonical(document, now_ns=self._clock.wall_ns()))
        place = _digest(key.encode())  # who makes keys out of secrets does not find them on the disk
        with self._book.changing():
            run = self._book.run_id(name)
            given = self._book.answer(run, place)
            if given is not None:
                return _repeated(given, digest, key)
            self._book.refuse_when_full()
            request = events.read(document, now_ns=self._clock.wall_ns())
            answer = Answer(digest, self._taken(run, request))
            self._book.note_answer(run, place, answer, due=self._clock.wall_ns() + KEPT_NS)
            reach("front.before_accept")
        reach("front.after_accept")
        self._beat_at = min(self._beat_at, self._beaten_ns + SOON_NS)
        return answer.text.encode()

    def tend(self) -> int:
        """Write what is due, beat for what is open, forget what is old.

        Returns:
            Until when there is nothing to do, ns since the epoch; a request may make it earlier.
        """
        now_ns = self._clock.wall_ns()
        try:
            self._expire(now_ns)
            is_through = self._outbox.deliver() and self._write(now_ns)
            if is_through:
                self._beat(now_ns)
            self._forget(now_ns)
        except (OSError, SpoolError, FrontError) as error:
            logger.warning("events that were accepted wait on the disk: %s", error)
            return now_ns + RETRY_NS
        return min(self._beat_at, self._forget_at, *self._dues()) if is_through else now_ns + RETRY_NS

    def close(self) -> None:
        """Write every span that is closed, and end the streams; spans that are open wait for the next process."""
        try:
            if self._outbox.deliver():
                self._write(self._clock.wall_ns() + STRAGGLERS_NS)
            self._outbox.close()
        except (OSError, SpoolError, FrontError) as error:
            logger.warning("events that were accepted wait for the next agent: %s", error)

    def _dues(self) -> Sequence[int]:
        found = (self._book.next_due(state) for state in (State.OPEN, State.CLOSED))
        return [due for due in found if due is not None]

    def _taken(self, run: int, request: Request) -> str:
        taken = _Taken()
        known: dict[tuple[bytes, bytes], Half | None] = {}
        for event in request.events:
            taken.traces.add(event.trace.hex())
            place = (event.trace, event.span)
            if place not in known:
                known[place] = self._half(run, event)
            half = known[place]
            if half is None:
                taken.late += 1
            else:
                taken.inserted += half.add(masked(event, self._redactor), heard_ns=self._clock.wall_ns())
        for (trace, span), half in known.items():
            if half is not None:
                self._book.keep(run, self._kept(trace, span, half))
        answer = {
            "inserted": taken.inserted,
            "trace_ids": sorted(taken.traces),
            "summary_updates": len(taken.traces),
            "warnings": [self._redactor.text(text) for text in _warnings(request, taken)],
        }
        return orjson.dumps(answer).decode()

    def _half(self, run: int, event: Event) -> Half | None:
        """What is known of the span; None: it was written, and cannot be changed any more."""
        kept = self._book.span(run, event.trace, event.span)
        if kept is None:
            return Half(event.started_ns, self._clock.wall_ns())
        return Half.of_text(kept.body) if kept.state in (State.OPEN, State.CLOSED) else None

    def _kept(self, trace: bytes, span: bytes, half: Half, /) -> Kept:
        now_ns = self._clock.wall_ns()
        if not half.is_closed:
            return Kept(trace, span, State.OPEN, now_ns + KEPT_NS, half.as_text())
        due = now_ns if half.is_whole else now_ns + STRAGGLERS_NS
        return Kept(trace, span, State.CLOSED, due, half.as_text())

    def _expire(self, now_ns: int) -> None:
        """End what nothing was heard of for a day."""
        while found := self._book.due(State.OPEN, now_ns=now_ns, limit=BATCH_ROWS):
            with self._book.changing():
                for run, kept in found:
                    half = Half.of_text(kept.body)
                    half.interrupt()
                    self._book.keep(run, replace(kept, state=State.CLOSED, due=now_ns, body=half.as_text()))

    def _write(self, now_ns: int) -> bool:
        """Write every closed span that is due; whether the spools have them all."""
        while found := self._book.due(State.CLOSED, now_ns=now_ns, limit=BATCH_ROWS):
            by_run: dict[int, list[Kept]] = {}
            for run, kept in found:
                by_run.setdefault(run, []).append(kept)
            for run, spans in by_run.items():
                if not all(self._outbox.write(run, placed(self._book, run, spans=few)) for few in _batches(spans)):
                    return False
        return True

    def _beat(self, now_ns: int) -> None:
        """Say what is open, and end the streams of runs of which nothing is heard."""
        if now_ns < self._beat_at:
            return
        self._beaten_ns, self._beat_at = now_ns, now_ns + BEAT_NS
        runs = self._book.open_runs()
        still = set(runs[:MOST_STREAMS])
        # Once more for those where nothing is open any more: the last heartbeat is what is believed.
        for run in (*still, *self._told.intersection(self._outbox.streams) - still):
            self._outbox.say(run, (heartbeat(self._book.open_spans(run), at_ns=now_ns),))
        self._told = still
        quiet = {run for run, used_ns in self._outbox.streams.items() if now_ns - used_ns > IDLE_NS}
        for run in quiet.difference(runs):
            self._outbox.end(run)

    def _forget(self, now_ns: int) -> None:
        if now_ns < self._forget_at:
            return
        self._forget_at = now_ns + FORGET_NS
        with self._book.changing():
            self._book.forget(now_ns=now_ns + (SHORTER_NS if self._book.fullness > 0.5 else 0))


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def checked_key(given: Sequence[str]) -> str:
    """The idempotency key of a request's headers.

    Raises:
        InvalidRequestError: there is none, or it cannot be one.
    """
    hint = "send one of your own per batch, such as a UUID, and the same one when you send the batch again"
    if len(given) != 1 or not given[0]:
        raise InvalidRequestError(f"{len(given)} Idempotency-Key headers came with this request: it has one", hint=hint)
    key = given[0]
    if len(key.encode("utf-8", "replace")) > MOST_KEY_BYTES or not key.isprintable():
        raise InvalidRequestError(
            f"Idempotency-Key is longer than {MOST_KEY_BYTES} bytes, or has control characters", hint=hint
        )
    return key


def _repeated(given: Answer, digest: bytes, key: str, /) -> bytes:
    if given.digest != digest:
        raise ConflictError(
            f"the Idempotency-Key {key[:40]!r} was used for another body",
            hint="send this body under a key of its own; a body that is sent again stays as it was",
        )
    return given.text.encode()


def _batches(spans: Sequence[Kept]) -> Iterator[Sequence[Kept]]:
    """The spans in groups that a batch takes."""
    group: list[Kept] = []
    size = 0
    for kept in spans:
        needed = len(kept.body) + PATH
        if group and size + needed > BATCH_TEXT:
            yield group
            group, size = [], 0
        group.append(kept)
        size += needed
    if group:
        yield group


def _warnings(request: Request, taken: _Taken) -> Iterator[str]:
    if request.unknown:
        names = sorted(request.unknown)
        told = ", ".join(f"{name[:64]} ({_events(request.unknown[name])})" for name in names[:NAMED])
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"fields that are not known were not kept: {told}{more}"
    if taken.late:
        yield f"{_events(taken.late)} came after the span was written, and not kept"


def _events(count: int) -> str:
    """So many events, in words."""
    return f"{count} event" if count == 1 else f"{count} events"
