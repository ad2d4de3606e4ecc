"""Clients of the HTTP ingest: events as they send them, and the front they send them to."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson

from rankscope._settings import Settings
from rankscope.front.book import MOST_BYTES, Book, RunName
from rankscope.front.desk import Desk
from rankscope.front.outbox import Outbox
from rankscope.privacy import Redactor
from rankscope.testing import ManualClock
from tests.agent.spooled import rows_in

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
CHILD = "00f067aa0ba902b8"
BEGIN = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)
BEGIN_NS = int(BEGIN.timestamp()) * 10**9
S = 10**9


def at(seconds: float) -> str:
    """So many seconds after `BEGIN`, as clients write it."""
    return (BEGIN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def event(
    sequence: int, kind: str, /, *, span: str = SPAN, more: Mapping[str, Any] | None = None, **stated: Any
) -> dict[str, Any]:
    """An event of a span that begins at `BEGIN`; every one states everything, as the clients' do.

    Args:
        sequence: Its number in the span.
        kind: Of the event.
        span: The span's id.
        more: Fields whose names are no names of arguments.
        stated: Fields.
    """
    return {
        "trace_id": TRACE,
        "span_id": span,
        "parent_span_id": None,
        "event_id": str(uuid.uuid4()),
        "sequence": sequence,
        "event_kind": kind,
        "name": "rollout episode 42",
        "kind": "rollout",
        "status": {"finished": "ok", "exception": "error", "interrupted": "interrupted"}.get(kind, "running"),
        "started_at": at(0),
        **stated,
        **(more or {}),
    }


def whole(span: str = SPAN, **stated: Any) -> list[dict[str, Any]]:
    """The two events of a span of two seconds."""
    end: dict[str, Any] = {"ended_at": at(2), "duration_ms": 2000.0, **stated}
    return [event(1, "started", span=span, **stated), event(2, "finished", span=span, **end)]


def body(*events: Mapping[str, Any]) -> bytes:
    """Events as a request's body."""
    return orjson.dumps({"events": events})


class Fronted:
    """A desk over a folder, with a clock that stands still and no HTTP before it.

    Attributes:
        root: The folder of the spools.
        clock: Its clock, a minute after `BEGIN`.
    """

    def __init__(self, root: Path, *, redactor: Redactor | None = None, most_bytes: int = MOST_BYTES) -> None:
        self.root = root
        self.clock = ManualClock(BEGIN_NS + 60 * S - 1)
        self._redactor = redactor or Redactor()
        self._most_bytes = most_bytes
        root.mkdir(parents=True, exist_ok=True)
        self.open()

    def open(self) -> None:
        """Begin, as a process does that finds what one before it left."""
        self.book = Book(self.root / "front.db", most_bytes=self._most_bytes)
        outbox = Outbox(self.book, Settings(home=self.root, spool=self.root), clock=self.clock)
        outbox.recover()
        self.desk = Desk(self.book, outbox, redactor=self._redactor, clock=self.clock)

    def close(self) -> None:
        """End in order."""
        self.desk.close()
        self.book.close()

    def send(self, *events: Mapping[str, Any], key: str | None = None, run: str = "r") -> dict[str, Any]:
        """The answer to a request with these events."""
        answer = self.desk.accept(RunName("p", run), key or str(uuid.uuid4()), body(*events))
        return dict(orjson.loads(answer))

    def written(self, *, after_s: float = 0) -> list[dict[str, object]]:
        """The rows of spans that are in the spools so many seconds later."""
        self.clock.advance(int(after_s * S))
        self.desk.tend()
        return rows_in(self.root, "spans")


class Sender:
    """A program that sends over HTTP.

    Args:
        url: The front's.
        key: API key; "": none.
        run: The run it sends events of.
        project: The project it names; "": none.
    """

    def __init__(self, url: str, *, key: str = "", run: str = "r", project: str = "") -> None:
        self._url = f"{url}/api/runs/{run}/traces/events" + (f"?project={project}" if project else "")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def post(self, *events: Mapping[str, Any], key: str | None = None) -> httpx.Response:
        """The answer to a request with these events."""
        return self.send(body(*events), key=key)

    def send(self, content: Any, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """The answer to a body."""
        own = {**self._headers, "Idempotency-Key": key or str(uuid.uuid4()), **(headers or {})}
        return httpx.post(self._url, content=content, headers=own, timeout=30)

    def call(self, method: str, *, headers: Sequence[tuple[str, str]] = ()) -> httpx.Response:
        """The answer to a request with just these headers."""
        return httpx.request(method, self._url, headers=[*self._headers.items(), *headers], timeout=30)
