"""What costs more than it may is stopped in the store and says so, and leaves nothing for the next answer."""

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ground.processes import ROOT, python
from tests.ground.stores import Store
from tests.query_api import story
from tests.query_api.sql.cutting import COSTLY, cut
from tests.query_api.sql.sending import refused, rows

STEPS = 4 * story.STEPS + 3
OTHERS = [{"project": "other", "name": "secret"}]
CODES = {why: [422, "limit_exceeded"] for why in COSTLY} | {
    "timed_out": [422, "timed_out"],
    "a fault midway": [400, "refused"],
    "a type": [400, "refused"],
}


def check(found: dict[str, Any]) -> None:
    assert {why: answer[:2] for why, answer in found.items()} == CODES
    # The answers behind a failed statement are the project's own rows, all of them and nothing else.
    assert all(answer[2:] == [OTHERS, [{"n": STEPS}]] for answer in found.values())


def test_with_chdb_every_costly_statement_is_stopped_and_the_next_answer_is_clean(tmp_path: Path) -> None:
    done = subprocess.run(
        python("tests.query_api.sql.cutting", tmp_path),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=150,
    )
    found: dict[str, Any] = json.loads(done.stdout)

    check(found["found"])
    assert found["running"] == 0


async def test_over_http_every_costly_statement_is_stopped_and_the_next_answer_is_clean(told: Store) -> None:
    check(await cut(told.url))


async def test_a_failed_statement_leaves_no_rows_for_the_next_one_of_a_running_service(
    embedded: str,
) -> None:
    async with httpx.AsyncClient(base_url=embedded, timeout=60) as api:
        for _ in range(3):
            await refused(api, "SELECT a.name AS n, toInt64(concat(a.name, b.name)) AS i FROM spans a, spans b")
            assert await rows(api, "SELECT 1 AS one") == [{"one": 1}]
            assert await rows(api, "SELECT DISTINCT name FROM spans", project="other") == [{"name": "secret"}]


@pytest.mark.parametrize("query", ["SELECT sleep(1)", "SELECT sleepEachRow(1) FROM spans", "SELECT throwIf(1)"])
async def test_nothing_makes_the_store_wait_or_fail_at_will(client: httpx.AsyncClient, query: str) -> None:
    assert (await refused(client, query))["code"] == "unknown_function"
