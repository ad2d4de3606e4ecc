"""What the rules say of real trainings: each illness by its name, the right rank, and nothing of a clean run."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.v1 import batch_pb2 as pb
from tests.ground.ranks import Pool
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api import ill_trainings
from tests.query_api.asking import get
from tests.query_api.conftest import over
from tests.query_api.ill_trainings import ILL, SICK, TRAININGS, recorded

EXPECTED = {
    "healthy": [],
    "annealed": [],
    "vanishing": ["vanishing"],
    "exploding_by_layer": ["exploding_by_layer"],
    # What a gradient that explodes does to the weights, the loss shows.
    "exploding": ["exploding", "loss_spike"],
    "dead": ["dead"],
    "dead at level 1": ["dead"],
    "dead with no way past": ["dead"],
    "converged": ["converged"],
    "loss_spike": ["loss_spike"],
}
"""Which rules find something in each training: every one in its own, none in a clean one."""


def run_of(training: str) -> str:
    """The run that recorded a training."""
    return training.replace(" ", "-")


@pytest.fixture(scope="module")
def trained(front_process: FrontProcess) -> Iterator[Store]:
    """A store with all of them."""
    store = Store(front_process.url)
    migrate(store.client)
    for name, training in TRAININGS.items():
        insert(store.client, *recorded(training, run_of(name)), token=name)
    yield store
    store.drop()


@pytest_asyncio.fixture
async def api(trained: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    async with over(trained) as opened:
        yield opened


async def found(api: httpx.AsyncClient, training: str, **query: Any) -> dict[str, list[dict[str, Any]]]:
    """What each rule that is a query finds; all of them judge each training."""
    every = (await get(api, f"/api/v1/runs/{run_of(training)}/rules", **query))["rules"]
    rules = [rule for rule in every if rule["query"] is not None]
    assert all(rule["is_judged"] for rule in rules)
    return {rule["name"]: rule["found"] for rule in rules}


@pytest.mark.parametrize("training", TRAININGS)
async def test_of_a_training_the_rules_say_what_is_wrong_with_it(api: httpx.AsyncClient, training: str) -> None:
    said = await found(api, training)

    assert [name for name, findings in said.items() if findings] == EXPECTED[training]


@pytest.mark.parametrize("training", ["dead", "dead at level 1"])
async def test_a_dead_block_is_named_with_the_step_in_which_it_died(api: httpx.AsyncClient, training: str) -> None:
    dead = (await found(api, training, rule="dead"))["dead"]

    block = [f"blocks.{SICK}.{name}" for name in ("linear.bias", "linear.weight", "norm.bias", "norm.weight")]
    assert sorted(one["name"] for one in dead) == block
    assert {one["min"] for one in dead} == {ILL}


async def test_a_layer_that_is_fed_by_a_dead_one_is_not_called_dead_itself(api: httpx.AsyncClient) -> None:
    dead = {one["name"] for one in (await found(api, "dead with no way past", rule="dead"))["dead"]}

    assert f"blocks.{SICK}.linear.weight" in dead
    assert f"blocks.{SICK + 1}.linear.weight" not in dead


async def test_a_weight_that_still_moves_has_not_converged(api: httpx.AsyncClient) -> None:
    said = await found(api, "converged", rule="converged", threshold="converged.moved=0")

    assert not said["converged"]


async def test_where_guards_are_asked_about_the_first_findings_the_answer_says_that_there_are_more(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope_query_api.routes.judging.MOST_GUARDED", 3)

    (dead,) = (await get(api, "/api/v1/runs/dead/rules", rule="dead"))["rules"]

    assert (dead["total"], dead["is_total_exact"], len(dead["found"])) == (3, False, 3)


async def test_gradients_that_leap_are_told_with_the_step_and_their_module(api: httpx.AsyncClient) -> None:
    leaps = (await found(api, "exploding", rule="exploding", limit=1000))["exploding"]

    assert {one["step"] for one in leaps if one["step"] <= ILL + 1} == {ILL + 1}
    assert {"head", f"blocks.{SICK}.linear"} <= {one["module"] for one in leaps}


async def test_a_bad_batch_of_one_rank_is_that_ranks_though_every_ranks_reduced_gradients_leap(
    api: httpx.AsyncClient, trained: Store, pool: Pool
) -> None:
    outcomes = pool.run(ill_trainings.on_ranks, timeout_s=150, run_id="ranks", bad_rank=1)
    insert(trained.client, *(pb.Batch.FromString(one) for each in outcomes for one in each), token="ranks")

    leaps = (await found(api, "ranks", rule="exploding", limit=1000))["exploding"]
    leaping = 'tensor.name == "head.weight" and tensor.l2 > 10 * prev(tensor.l2)'
    query = f'tensor.role == "grad" and tensor.reduced == true and {leaping}'
    reduced = (await api.post("/api/v1/tql", json={"query": query, "run": "ranks"})).json()["items"]

    assert {(one["rank"], one["step"]) for one in leaps} == {(1, ILL)}
    assert "head.weight" in {one["name"] for one in leaps}
    assert {(one["rank"], one["step"]) for one in reduced} == {(rank, ILL) for rank in range(pool.world_size)}


@pytest.mark.slow
@pytest.mark.parametrize("training", ["healthy", "annealed"])
async def test_a_thousand_clean_steps_alarm_nobody(api: httpx.AsyncClient, trained: Store, training: str) -> None:
    run = f"long-{training}"
    for batch in recorded(replace(TRAININGS[training], steps=1000), run):
        insert(trained.client, batch, token=f"{run}-{batch.header.seq}")

    assert not any((await found(api, run)).values())
