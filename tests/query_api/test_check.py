"""Rules judge a run, and what they find is kept once: as rows of the run, by whoever may write."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.keys import KeyFile, KeyRing, Scope
from rankscope_proto.names import TENSOR_FLAGS, Phase, Role, RunStatus, SpanStatus
from rankscope_proto.v1 import batch_pb2 as pb
from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.routes.judges import JUDGES
from rankscope_query_api.rules import RULES
from rankscope_query_api.settings import Settings
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import error_in, get
from tests.query_api.batches import MS, START, Row, Writer
from tests.query_api.conftest import over

AMP_STEP, ILL_STEP = 2, 5
CHECK = "/api/v1/runs/ill/check"
ONCE = "/api/v1/runs/judged once"
"""A run like it, which one test alone judges."""


def _tensor(name: str, step: int, at: int, *, role: Role = Role.ACTIVATION, **more: Any) -> Row:
    phase = Phase.BACKWARD if role is Role.GRAD else Phase.FORWARD
    shared = {"name": name, "module": name, "role": role.code, "phase": phase.code, "step": step}
    return {**shared, "time": START + step * 1000 * MS + at, "nonfinite_count": 0, **more}


def _trainer(rank: int, *, run: str = "ill") -> Iterator[pb.Batch]:
    """Rank 1 overflows in a layer at `ILL_STEP`, the others have it from the reduction; a scaler skipped `AMP_STEP`."""
    writer = Writer(run, rank, world_size=3)
    skipped = {"nonfinite_count": 9, "flags": TENSOR_FLAGS["skipped"]}
    rows = [_tensor("head", AMP_STEP, 3, nonfinite_count=4), _tensor("w", AMP_STEP, 5, role=Role.GRAD, **skipped)]
    rows += [_tensor("w", AMP_STEP, 6, role=Role.WEIGHT)]
    rows += [_tensor("layers.0", ILL_STEP, 1), _tensor("layers.1", ILL_STEP, 2, nonfinite_count=int(rank == 1))]
    rows += [_tensor("w", ILL_STEP, 60, role=Role.GRAD, nonfinite_count=8)]
    entry = START + ILL_STEP * 1000 * MS
    collective: Row = {"group": "0", "group_ranks": "0-2", "op": "all_reduce", "step": ILL_STEP, "entry": entry}
    yield writer.seal(
        sealed_ns=START + ILL_STEP * 1000 * MS,
        tensor_stats=rows,
        collectives=[
            {**collective, "cseq": cseq, "entry": entry + at, "exit": entry + at + 5} for cseq, at in ((6, 0), (7, 40))
        ],
        events=[
            {"time": START, "kind": "step_skipped", "name": "x", "severity": 2, "step": AMP_STEP},
            {"time": START, "kind": "end_of_stream", "name": "end", "severity": 2},
        ],
    )


def _failed(rank: int) -> pb.Batch:
    """Rank 2 raises in step 3, the others when the connection to it is gone, by clocks that are earlier."""
    at = START + (9 if rank == 2 else 1) * MS
    error = (
        {"error_type": "ValueError", "error_preview": "no labels"}
        if rank == 2
        else {
            "error_type": "RuntimeError",
            "error_preview": "Connection closed by peer",
        }
    )
    span = {"trace_hi": 1, "trace_lo": 1, "name": "step", "path": "step", "kind": 13, "start": at, "duration": MS}
    shared = {**span, "status": SpanStatus.ERROR.code, "step": 3, **error}
    return Writer("failed", rank, world_size=3).seal(
        spans=[{**shared, "span_id": rank + 1}, {**shared, "span_id": rank + 9, "error_type": "Inner", "duration": 5}],
        run_info=[{"status": RunStatus.FAILED.code, "start": START, "end": at + 2 * MS}],
    )


@pytest.fixture(scope="module")
def ill(front_process: FrontProcess) -> Iterator[Store]:
    """A run that fell ill on one rank, and another project's run of its name."""
    store = Store(front_process.url)
    migrate(store.client)
    made = [batch for run in ("ill", "judged once") for rank in range(3) for batch in _trainer(rank, run=run)]
    made += [Writer(run, 0, project="other").seal() for run in ("ill", "judged once")]
    made += [*map(_failed, range(3)), Writer("well", 0).seal()]
    own: Row = {"time": START, "kind": "finding", "name": "mine", "severity": 3, "step": 4, "payload": '{"id": "x"}'}
    made.append(Writer("told by hand", 0).seal(events=[own]))
    insert(store.client, *made)
    yield store
    store.drop()


@pytest_asyncio.fixture
async def api(ill: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    async with over(ill) as opened:
        yield opened


@pytest_asyncio.fixture
async def guarded(ill: Store, tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, KeyFile]]:
    """The service with keys on."""
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": ill.url})
    file = KeyFile(tmp_path / "keys.json")
    file.create(["x"], frozenset({Scope.READ}))
    store = ClickHouseStore(ClickHouse(settings, Metrics()))
    app = create_app(store, settings, ring=KeyRing(tmp_path / "keys.json"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as opened:
        yield opened, file
    await store.close()


async def checked(api: httpx.AsyncClient, path: str = CHECK, **body: object) -> dict[str, Any]:
    """What a check answers."""
    answer = await api.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_first_tensor_whose_inputs_were_finite_is_the_origin(api: httpx.AsyncClient) -> None:
    found = await get(api, "/api/v1/runs/ill/provenance")

    origin = found["origin"]
    assert (origin["rank"], origin["step"], origin["name"], origin["role"]) == (1, ILL_STEP, "layers.1", "activation")
    assert [(one["rank"], one["from_rank"], one["via"]["seq"]) for one in found["received"]] == [(0, 1, 7), (2, 1, 7)]
    assert (found["undecided"], found["basis"]) == ([], "collectives")
    assert found["evidence"]["outputs_before"].startswith("1 outputs")
    assert (await get(api, "/api/v1/runs/ill/findings"))["nonfinite"]["layer"] == "layers.1"


async def test_a_later_step_can_be_traced_by_itself(api: httpx.AsyncClient) -> None:
    found = await get(api, "/api/v1/runs/ill/provenance", step=ILL_STEP + 1)

    assert (found["origin"], found["received"], found["undecided"]) == (None, [], [])


async def test_what_a_rule_finds_is_kept_once_however_often_it_is_found(api: httpx.AsyncClient) -> None:
    first = await checked(api, f"{ONCE}/check", rules=["nonfinite"])
    again = await checked(api, f"{ONCE}/check", rules=["nonfinite"])

    [finding], [repeated] = first["findings"], again["findings"]
    assert (finding["stored"], finding["new"], repeated["stored"], repeated["new"]) == (True, True, True, False)
    assert first["has_fired"]
    kept = await get(api, f"{ONCE}/findings")
    assert [one["subject"] for one in kept["items"]] == [finding["subject"]]
    assert (kept["items"][0]["severity"], kept["items"][0]["rank"], kept["total"]) == ("error", 1, 1)
    assert (await get(api, f"{ONCE}/completeness"))["state"] == "complete"
    assert (await get(api, f"{ONCE}/findings", project="other"))["items"] == []


async def test_a_finding_that_a_program_wrote_by_itself_has_what_each_has(api: httpx.AsyncClient) -> None:
    [item] = (await get(api, "/api/v1/runs/told by hand/findings"))["items"]

    assert (item["rule"], item["severity"], item["step"]) == ("mine", "warning", 4)
    assert len(item["id"]) == 32
    assert item["sentence"]


async def test_a_rule_that_found_nothing_and_one_that_lacks_data_are_told_apart(api: httpx.AsyncClient) -> None:
    found = await checked(api, "/api/v1/runs/well/check")

    rules = {rule["name"]: rule for rule in found["rules"]}
    assert (found["findings"], found["has_fired"]) == ([], False)
    assert rules["exploding"]["is_judged"]
    assert (rules["nonfinite"]["why_not"], rules["hang"]["why_not"]) == ("lacks_data", "lacks_data")


async def test_only_who_may_write_has_findings_kept(guarded: tuple[httpx.AsyncClient, KeyFile]) -> None:
    api, file = guarded
    scopes = {Scope.READ: False, Scope.INGEST: True, Scope.ADMIN: True}
    for scope, may in scopes.items():
        key = file.create(["default"], frozenset({Scope.READ, scope}))[0]
        answer = await api.post(CHECK, json={"rules": ["nonfinite"]}, headers={"authorization": f"Bearer {key}"})
        [finding] = answer.json()["findings"]
        assert finding["stored"] is may
        assert (finding["why_not_stored"] is None) is may


async def test_where_the_store_refuses_a_finding_is_told_and_not_kept(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    insert(own.client, *(batch for rank in range(3) for batch in _trainer(rank)))
    own.client.command("RENAME TABLE landing TO landed")
    try:
        [finding] = (await checked(api_of_own, rules=["nonfinite"]))["findings"]
    finally:
        own.client.command("RENAME TABLE landed TO landing")

    assert (finding["stored"], finding["rank"]) == (False, 1)
    assert finding["why_not_stored"]


async def test_the_rank_that_failed_first_is_told_with_its_error(api: httpx.AsyncClient) -> None:
    [finding] = (await checked(api, "/api/v1/runs/failed/check", rules=["first_failure"]))["findings"]

    assert finding["sentence"] == (
        "rank 2 failed first, with ValueError at step 3: no labels; ranks 0, 1 failed after it"
    )


async def test_what_is_no_rule_is_refused(api: httpx.AsyncClient) -> None:
    for body in ({"rules": ["hung"]}, {"thresholds": ["hang.still=3"]}, {"rule": "hang"}):
        error_in(await api.post(CHECK, content=json.dumps(body)), status=422)


def test_each_rule_has_a_text_or_a_judge_and_says_how_often_it_errs() -> None:
    assert all(bool(rule.query) is not bool(rule.judge) for rule in RULES)
    assert {rule.judge for rule in RULES if rule.judge} == set(JUDGES)
    assert all(rule.noise_budget and rule.severity in ("info", "warning", "error") for rule in RULES)
