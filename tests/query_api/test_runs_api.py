"""Runs, metrics and completeness over HTTP."""

import httpx
import pytest

from tests.query_api import story
from tests.query_api.asking import RUN, get, refused, walked


async def test_runs_come_the_latest_first_with_their_status(api: httpx.AsyncClient) -> None:
    page = await get(api, "/api/v1/runs")

    assert [run["run_id"] for run in page["items"]] == [story.RUN, story.OTHER_RUN]
    latest = page["items"][0]
    assert (latest["status"], latest["world_size"], latest["ranks"], latest["launches"]) == ("finished", 4, 4, 2)
    assert latest["tags"] == ["char", "ddp"]
    assert latest["start"].endswith("Z")
    assert latest["start_ns"] == str(story.START)


async def test_a_run_shows_its_launches_processes_and_configuration(api: httpx.AsyncClient) -> None:
    run = await get(api, RUN)

    assert run["config"] == {"lr": 0.001, "layers": 4}
    assert [(launch["attempt"], launch["missing_ranks"]) for launch in run["launch_list"]] == [(0, [2]), (1, [])]
    assert len(run["processes"]) == 4
    assert run["rows"]["scalars"] == 4 * story.STEPS
    assert {(gap["class"], gap["cause"]) for gap in run["gaps"]} == {("lost", "ring_full"), ("not_captured", "sampled")}


async def test_metrics_are_listed_and_a_series_is_read_by_rank_and_step(api: httpx.AsyncClient) -> None:
    names = await get(api, f"{RUN}/metrics")
    points = await walked(api, f"{RUN}/metrics", limit=50, name="loss")

    assert [(one["name"], one["points"], one["last_step"]) for one in names["items"]] == [("loss", 120, 29)]
    assert [(point["rank"], point["step"]) for point in points] == [
        (rank, step) for rank in range(4) for step in range(story.STEPS)
    ]
    assert points[3]["value"] == pytest.approx(3.7)


async def test_an_unknown_metric_names_the_nearest(api: httpx.AsyncClient) -> None:
    error = await refused(api, f"{RUN}/metrics", status=404, name="los")

    assert error["code"] == "unknown_metric"
    assert "'loss'" in error["hint"]


async def test_losses_are_counted_and_a_launch_that_was_cut_off_leaves_the_run_unfinished(
    api: httpx.AsyncClient,
) -> None:
    answer = await get(api, f"{RUN}/completeness")

    spans = answer["sections"][0]
    assert (spans["section"], spans["lost"], spans["missing"]) == ("spans", 3, 0)
    assert spans["emitted"] == spans["stored"] + 3
    assert answer["state"] == "unfinished"
    assert not answer["complete"]
    assert not answer["ended"]


async def test_a_complete_run_is_called_complete(api: httpx.AsyncClient) -> None:
    answer = await get(api, f"/api/v1/runs/{story.OTHER_RUN}/completeness")

    assert (answer["state"], answer["complete"], answer["ended"]) == ("complete", True, True)


async def test_an_unknown_run_names_the_nearest_one(api: httpx.AsyncClient) -> None:
    error = await refused(api, "/api/v1/runs/bright-oter", status=404)

    assert error["code"] == "unknown_run"
    assert error["hint"] == f"the nearest known one is '{story.RUN}'"


async def test_an_unknown_project_reads_like_an_unknown_run(api: httpx.AsyncClient) -> None:
    unknown_project = await refused(api, f"/api/v1/runs/{story.RUN}", status=404, project="nobodys")
    unknown_run = await refused(api, "/api/v1/runs/zzz", status=404)

    assert unknown_project["message"] == f"no run '{story.RUN}' in project 'nobodys'"
    assert unknown_run["message"] == "no run 'zzz' in project 'default'"
    assert unknown_project["hint"] == unknown_run["hint"]


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_of_runs_hold_every_run_once(api: httpx.AsyncClient, limit: int) -> None:
    runs = await walked(api, "/api/v1/runs", limit=limit)

    assert [run["run_id"] for run in runs] == [story.RUN, story.OTHER_RUN]
