"""Each rule finds the illness it is named after, in a store, and nothing in a healthy run or in another's illness."""

import math
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio

from rankscope import tql
from rankscope_proto.names import TENSOR_FLAGS, Phase, Role
from rankscope_query_api.rules import RULES
from rankscope_query_api.rules.catalog import filled
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import error_in, get
from tests.query_api.batches import START, Row, Writer
from tests.query_api.conftest import over

if TYPE_CHECKING:
    from rankscope_proto.v1 import batch_pb2 as pb

LAYERS, STEPS, ILL = 8, 60, 40
"""Illnesses begin at step `ILL`."""

Norm = Callable[[int, int], float]
"""(step, layer) -> the norm of the gradient of the layer's weight, before noise."""

Loss = Callable[[int], float]


def falling(step: int) -> float:
    """The loss of a run that learns."""
    return 2.0 * math.exp(-step / 40)


def flat_at_last(step: int) -> float:
    """The loss of a run that has learned all there is."""
    return falling(min(step, ILL - 1))


def even(_step: int, _layer: int) -> float:
    """Gradients that are alike in all layers."""
    return 1.0


RUNS: dict[str, tuple[Norm, Loss]] = {
    "healthy": (even, falling),
    "vanishing": (lambda _step, layer: 4.0 ** (layer - LAYERS), falling),
    "exploding_by_layer": (lambda _step, layer: 4.0 ** (LAYERS - layer), falling),
    "exploding": (lambda step, layer: 500.0 if step == ILL and layer == 3 else 1.0, falling),
    "dead": (lambda step, layer: 0.0 if step >= ILL and layer == 3 else 1.0, falling),
    "converged": (lambda step, _layer: 1e-6 if step >= ILL else 1.0, flat_at_last),
    "loss_spike": (even, lambda step: falling(step) * (20.0 if step == ILL else 1.0)),
}
"""A run for each illness, by the rule that must find it."""


def _gradients(norm: Norm, *, skipped: int | None = None) -> Iterator[Row]:
    noise = Random(7)
    for step in range(STEPS):
        for layer in range(LAYERS):
            scale = 1e6 if step == skipped else 1.0
            yield {
                "name": f"blocks.{layer}.weight",
                "module": f"blocks.{layer}",
                "layer_index": layer,
                "role": Role.GRAD.code,
                "phase": Phase.BACKWARD.code,
                "flags": TENSOR_FLAGS["skipped"] if step == skipped else 0,
                "step": step,
                "time": START + step,
                "l2": norm(step, layer) * scale * noise.uniform(0.8, 1.25),
            }


def _losses(loss: Loss) -> Iterator[Row]:
    noise = Random(3)
    for step in range(STEPS):
        exact = loss(step)
        moved = noise.uniform(0.97, 1.03) if loss is not flat_at_last or step < ILL else 1.0
        yield {"name": "loss", "value": exact * moved, "step": step, "time": START + step}


@pytest.fixture(scope="module")
def ill(front_process: FrontProcess) -> Iterator[Store]:
    """All runs, one in which a scaler skipped a step, and one without a loss or a deep model."""
    store = Store(front_process.url)
    migrate(store.client)
    made: list[pb.Batch] = [
        Writer(name, 0).seal(tensor_stats=list(_gradients(norm)), scalars=list(_losses(loss)))
        for name, (norm, loss) in RUNS.items()
    ]
    skipping = list(_gradients(even, skipped=ILL))
    made.append(Writer("skipping", 0).seal(tensor_stats=skipping, scalars=list(_losses(falling))))
    made.append(Writer("silent", 0).seal(tensor_stats=[row for row in skipping if row["layer_index"] == 0]))
    insert(store.client, *made)
    yield store
    store.drop()


@pytest_asyncio.fixture
async def api(ill: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    async with over(ill) as opened:
        yield opened


async def judged(api: httpx.AsyncClient, run: str, **query: Any) -> dict[str, dict[str, Any]]:
    """What each rule that is a query says of a run."""
    rules = (await get(api, f"/api/v1/runs/{run}/rules", **query))["rules"]
    return {rule["name"]: rule for rule in rules if rule["query"] is not None}


async def test_what_a_query_found_is_told_by_its_step_and_no_time_that_nobody_knows(api: httpx.AsyncClient) -> None:
    answer = (await api.post("/api/v1/runs/exploding/check", json={"rules": ["exploding"]})).json()

    assert {(finding["step"], finding["first"]) for finding in answer["findings"]} == {(ILL, None)}


def test_every_query_of_a_rule_is_one() -> None:
    for rule in (rule for rule in RULES if rule.query):
        finding = {"min": 1, "max": 2, "distinct": 2, "rank": 0, "name": 'a "b"', "layer_index": 1}
        guards = [rule.guard_text(guard, rule.thresholds, finding=finding) for guard in rule.guards]
        for text in (
            rule.text(rule.thresholds),
            *guards,
            *([filled(rule.needs, rule.thresholds)] if rule.needs else []),
        ):
            assert text
            assert tql.check(tql.parse(text))


@pytest.mark.parametrize("run", RUNS)
async def test_an_illness_is_found_by_its_rule_and_by_no_other(api: httpx.AsyncClient, run: str) -> None:
    rules = await judged(api, run)

    assert [name for name, rule in rules.items() if rule["found"]] == ([] if run == "healthy" else [run])
    assert all(rule["is_judged"] for rule in rules.values())


async def test_a_finding_names_the_tensor_and_the_step(api: httpx.AsyncClient) -> None:
    leap = (await judged(api, "exploding", rule="exploding"))["exploding"]["found"]
    dead = (await judged(api, "dead", rule="dead"))["dead"]["found"]

    assert [(one["step"], one["name"]) for one in leap] == [(ILL, "blocks.3.weight")]
    assert [(one["name"], one["min"], one["max"]) for one in dead] == [("blocks.3.weight", ILL, STEPS - 1)]


async def test_a_step_that_a_scaler_skipped_alarms_nobody(api: httpx.AsyncClient) -> None:
    assert not any(rule["found"] for rule in (await judged(api, "skipping")).values())


async def test_a_run_that_lacks_what_a_rule_is_about_is_not_judged_by_it(api: httpx.AsyncClient) -> None:
    rules = await judged(api, "silent")

    assert [name for name, rule in rules.items() if rule["is_judged"]] == ["exploding", "loss_spike"]
    assert {rule["why_not"] for rule in rules.values()} == {None, "lacks_data"}


def test_a_threshold_is_written_as_it_was_given() -> None:
    assert filled("{a} {b} {c} {d}", {"a": 20.0, "b": 1e-14, "c": 3, "d": 'a "b"'}) == r'20 1e-14 3 "a \"b\""'


async def test_thresholds_can_be_seen_and_changed(api: httpx.AsyncClient) -> None:
    changed = (await judged(api, "loss_spike", rule="loss_spike", threshold="loss_spike.factor=50"))["loss_spike"]

    assert changed["thresholds"]["factor"] == 50.0
    assert "50 * abs(prev(scalar.value))" in changed["query"]
    assert not changed["found"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"rule": "vanished"}, "vanishing"),
        ({"threshold": "exploding.y=3"}, "z"),
        ({"threshold": "exploding.z=high"}, None),
        ({"threshold": "exploding.z=nan"}, None),
        ({"threshold": "z=3"}, None),
    ],
)
async def test_what_is_no_rule_and_no_threshold_is_refused(
    api: httpx.AsyncClient, query: dict[str, str], expected: str | None
) -> None:
    error = error_in(await api.get("/api/v1/runs/healthy/rules", params=query), status=422)

    assert expected is None or expected in error["expected"]


async def test_a_threshold_that_makes_no_query_is_refused_as_the_query_would_be(api: httpx.AsyncClient) -> None:
    for threshold in ("exploding.window=0", f"exploding.window=1{'0' * 400}", "vanishing.names=("):
        answer = await api.get("/api/v1/runs/healthy/rules", params={"threshold": threshold})

        assert error_in(answer, status=400)["position"]["line"] == 1


async def test_all_findings_are_counted_however_few_are_shown(api: httpx.AsyncClient) -> None:
    asked = {"rule": "exploding", "threshold": ["exploding.z=1", "exploding.factor=1"], "limit": 3}

    rule = (await judged(api, "exploding", **asked))["exploding"]

    assert rule["total"] > len(rule["found"]) == 3
    assert rule["is_total_exact"]


async def test_rules_that_had_no_time_say_that_they_did_not_judge(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope_query_api.routes.rules.MOST_SECONDS", 0.0)

    rules = await judged(api, "dead")

    assert {(rule["is_judged"], rule["why_not"], rule["is_total_exact"]) for rule in rules.values()} == {
        (False, "out_of_time", False)
    }
