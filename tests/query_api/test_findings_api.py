"""Findings and TQL over HTTP."""

import httpx

from tests.query_api import story
from tests.query_api.asking import RUN, ask, error_in, get


async def test_the_straggler_and_the_first_non_finite_value_are_found(api: httpx.AsyncClient) -> None:
    found = await get(api, f"{RUN}/findings")

    straggler, nonfinite = found["straggler"], found["nonfinite"]
    assert (straggler["rank"], straggler["phase"]) == (story.SLOW_RANK, "input")
    assert straggler["since_step"] == story.SLOW_SINCE
    assert 70_000_000 < int(straggler["lost_ns_per_step"]) < 90_000_000
    assert (nonfinite["rank"], nonfinite["step"]) == (story.NONFINITE_RANK, story.NONFINITE_STEP)
    assert nonfinite["layer"] == story.NONFINITE_MODULE
    assert [(tensor["rank"], tensor["role"]) for tensor in nonfinite["tensors"]] == [
        (1, "activation"),
        *((rank, "grad") for rank in range(4)),
    ]


async def test_a_run_without_faults_has_no_findings(api: httpx.AsyncClient) -> None:
    found = await get(api, f"/api/v1/runs/{story.OTHER_RUN}/findings")

    assert (found["straggler"], found["nonfinite"]) == (None, None)


async def test_the_first_non_finite_value_is_a_query(api: httpx.AsyncClient) -> None:
    answer = (await ask(api, "tensor.nonfinite_count > 0 | first", run=story.RUN)).json()

    [row] = answer["items"]
    assert (row["rank"], row["step"], row["module"]) == (1, 14, story.NONFINITE_MODULE)
    assert row["nonfinite_count"] == 3
    assert answer["total"] == 1
    assert answer["gaps"][0]["cause"] == "sampled"


async def test_tql_pages_hold_every_row_once(api: httpx.AsyncClient) -> None:
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = (await ask(api, 'span.name == "step" and step in 3..20', run=story.RUN, limit=25, **after)).json()
        seen += [row["span_id"] for row in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}

    assert len(set(seen)) == len(seen) == page["total"] == 4 * 18


async def test_counts_come_by_group(api: httpx.AsyncClient) -> None:
    answer = (await ask(api, "tensor.nonfinite_count > 0 | count() by rank", run=story.RUN)).json()

    assert answer["items"] == [{"rank": rank, "count": 2 if rank == 1 else 1} for rank in range(4)]


async def test_a_query_that_is_wrong_is_shown_where(api: httpx.AsyncClient) -> None:
    error = error_in(await ask(api, "tensor.nonfinit_count > 0", run=story.RUN), status=400)

    assert error["position"] == {"line": 1, "column": 1, "length": 21}
    assert "nonfinite_count" in error["hint"]


async def test_a_query_of_an_unknown_run_is_not_found(api: httpx.AsyncClient) -> None:
    error = error_in(await ask(api, "rank == 0 and tensor.l2 > 0", run="bright-ott"), status=404)

    assert error["code"] == "unknown_run"


async def test_a_query_without_a_run_reads_the_project(api: httpx.AsyncClient) -> None:
    answer = (await ask(api, "tensor.nonfinite_count > 0 | count() by run.id")).json()

    assert answer["items"] == [{"run_id": story.RUN, "count": 5}]
