"""`rankscope tail`: the latest rows, and those that come, also when they come late and out of order."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope import tql
from rankscope.cli._errors import WrongCallError
from rankscope.cli._tail import Watched, by_time
from rankscope.client import Asking, QueryRefusedError
from rankscope.up import Client, Json, RefusedError, UnreachableError
from tests.ground.stacks import clean_environ
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import MS, START, Row, Writer
from tests.query_api.conftest import serving

EVERY_SPAN = "exists(span.name)"


class Live:
    """A store that goes on being written to."""

    def __init__(self, store: Store, url: str) -> None:
        self.url = url
        self._store = store
        self._writer = Writer("live", 0, world_size=1)

    def write(self, *moments: int) -> None:
        """Spans that began so many ms after the start."""
        rows: list[Row] = [
            {
                "span_id": at + 1,
                "trace_lo": 7,
                "name": f"at {at}",
                "path": "x",
                "start": START + at * MS,
                "duration": MS,
            }
            for at in moments
        ]
        insert(self._store.client, self._writer.seal(sealed_ns=START, spans=rows), token=f"rows of {moments}")


@pytest.fixture
def live(front_process: FrontProcess) -> Iterator[Live]:
    store = Store(front_process.url)
    migrate(store.client)
    with serving(store) as url:
        yield Live(store, url)
    store.drop()


def test_each_row_is_seen_once_in_the_order_of_its_time_the_late_ones_too(live: Live) -> None:
    watched = Watched(Asking(Client(live.url)), by_time(EVERY_SPAN))
    live.write(10, 20, 30)

    first = watched.new()
    live.write(40, 15)
    second = watched.new()

    assert [row["name"] for row in first] == ["at 10", "at 20", "at 30"]
    assert [row["name"] for row in second] == ["at 15", "at 40"]
    assert watched.new() == []


class Restarted:
    """A query service that is away for a while."""

    def __init__(self, *answers: list[Row] | Exception) -> None:
        self._answers = list(answers)

    def tql(self, text: str, *, limit: int | None = None, after: str | None = None) -> Json:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"items": answer}


def test_a_service_that_is_away_for_a_while_is_asked_until_it_answers_and_that_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    away, busy = UnreachableError("it is not reachable"), QueryRefusedError(RefusedError(503, {}), "")
    service = Restarted([{"name": "old"}], away, busy, [{"name": "new"}, {"name": "old"}], away)
    watched = Watched(service, EVERY_SPAN)
    watched.new()

    assert [watched.new_if_answered() for _ in range(4)] == [[], [], [{"name": "new"}], []]
    assert capsys.readouterr().err.count("asked again until it answers") == 2


def test_a_query_that_is_refused_for_good_is_not_asked_again() -> None:
    watched = Watched(Restarted(QueryRefusedError(RefusedError(404, {"message": "no run"}), "")), EVERY_SPAN)

    with pytest.raises(QueryRefusedError):
        watched.new_if_answered()


def test_following_shows_what_comes_as_a_document_a_row_until_ctrl_c(live: Live, tmp_path: Path) -> None:
    live.write(1, 2, 3)
    command = [sys.executable, "-m", "rankscope", "tail", EVERY_SPAN, "-f", "-n", "2", "--every", "0.05", "--json"]

    with subprocess.Popen(
        [*command, "--url", live.url],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environ(RANKSCOPE_HOME=str(tmp_path)),
    ) as process:
        assert process.stdout
        names = [json.loads(process.stdout.readline())["name"] for _ in range(2)]
        live.write(4)
        names.append(json.loads(process.stdout.readline())["name"])
        process.send_signal(signal.SIGINT)

    assert names == ["at 2", "at 3", "at 4"]
    assert process.returncode == 130


def test_the_latest_rows_come_by_time_whatever_is_asked() -> None:
    text = by_time("span.name == 'x' | where rank == 1")

    assert text == 'span.name == "x" | where rank == 1 | order by time desc'
    assert tql.check(tql.parse(text))


@pytest.mark.parametrize("stage", ["count()", "select rank", "first", "order by rank"])
def test_a_query_of_something_else_than_stored_rows_is_a_wrong_call(stage: str) -> None:
    with pytest.raises(WrongCallError, match="as they are stored"):
        by_time(f"{EVERY_SPAN} | {stage}")
