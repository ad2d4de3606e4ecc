"""No project ever sees another's rows: not by any route, and not through a handle that a failed query had."""

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ground.processes import ROOT, python
from tests.query_api import story
from tests.query_api.asking import ROLLOUT, RUN, ask, get

EVERY_LIST = [
    *("/api/v1/runs", RUN, f"{RUN}/metrics", f"{RUN}/metrics?name=loss", f"{RUN}/traces", f"{RUN}/steps"),
    *(f"{RUN}/traces/{ROLLOUT}/spans", f"{RUN}/steps/5/tree", f"{RUN}/steps/5/tree?rank=0", f"{RUN}/tensors"),
    *(f"{RUN}/findings", f"{RUN}/completeness", "/api/v1/traces?from=2000-01-01T00:00:00Z", f"{RUN}/traces/steps"),
    *(f"{RUN}/traces/{ROLLOUT}", f"{RUN}/traces/{ROLLOUT}/export", f"{RUN}/traces/export"),
    *(f"{RUN}/traces/{ROLLOUT}/window?span={1:016x}", f"{RUN}/steps/5/tree?by=rank"),
    *(f"{RUN}/stragglers", f"{RUN}/collectives"),
    *(f"{RUN}/clocks", f"{RUN}/system", f"{RUN}/hang", f"{RUN}/provenance"),
]
"""The run of the same id in the other project has a `secret` in each of these."""


@pytest.mark.parametrize("path", EVERY_LIST)
async def test_no_answer_holds_anything_of_the_other_project(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)

    assert answer.status_code == 200
    assert "secret" not in answer.text


async def test_the_other_project_sees_its_own_and_only_that(client: httpx.AsyncClient) -> None:
    runs = await get(client, "/api/v1/runs", project="other")
    tensors = await get(client, f"{RUN}/tensors", project="other")
    spans = await get(client, f"{RUN}/traces/{ROLLOUT}/spans", project="other")

    assert {run["run_id"] for run in runs["items"]} == {story.RUN, "secret-run"}
    assert [row["name"] for row in tensors["items"]] == ["secret"]
    assert [row["name"] for row in spans["items"]] == ["secret"]


@pytest.mark.parametrize(
    "query",
    [
        "tensor.nonfinite_count > 0",
        "span.duration > 0ns",
        'span.name == "secret"',
        "tensor.nonfinite_count > 0 and span.duration > 0ns",
        "tensor.nonfinite_count > 0 | count() by run.id, tensor.name",
        'project == "other" and tensor.nonfinite_count > 0',
        'run.id == "secret-run" or tensor.nonfinite_count >= 0',
    ],
)
async def test_no_query_reads_the_other_project(client: httpx.AsyncClient, query: str) -> None:
    answer = await ask(client, query, limit=1000)

    assert "secret-run" not in answer.text.replace(query, "")
    assert '"secret"' not in answer.text


async def test_suggestions_name_nothing_of_the_other_project(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/runs/secret-rum")

    assert answer.status_code == 404
    assert "secret-run" not in answer.text


def test_a_failed_query_leaves_no_rows_for_the_next_one(tmp_path: Path) -> None:
    # The driver's handle does leave them, which this shows too: without it the guard would be tested on nothing.
    done = subprocess.run(
        python("tests.query_api.leak", tmp_path), cwd=ROOT, check=True, capture_output=True, text=True, timeout=120
    )
    found: dict[str, Any] = json.loads(done.stdout)

    assert found["driver"] > 0
    assert (found["failures"], found["rows"]) == (3, 0)
