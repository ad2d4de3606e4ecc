"""The model, a profile over its layers, and hits, of a run whose shards and copies are known by hand."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.log2_histogram import BUCKETS
from rankscope_proto.names import TENSOR_FLAGS, GapCause, GapClass, Phase, Role
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import error_in, get, walked
from tests.query_api.batches import MS, START, Row, Writer
from tests.query_api.conftest import over

if TYPE_CHECKING:
    from rankscope_proto.v1 import batch_pb2 as pb

RUN = "/api/v1/runs/sharded"
REDUCED, LOCAL = TENSOR_FLAGS["reduced"], TENSOR_FLAGS["local"]
RANKS = range(4)


def _module(path: str, kind: str, index: int | None = None, **more: Any) -> Row:
    parent = path.rpartition(".")[0]
    return {"path": path, "parent": parent, "class": "C", "type": kind, "layer_index": index, "time": START, **more}


def _modules(*, is_trained: bool, at: int = START) -> list[Row]:
    weight: Row = {
        "parameters": ["weight"],
        "parameter_shapes": ["4x2"],
        "parameter_dtypes": ["float32"],
        "parameter_trainable": [int(is_trained)],
    }
    found = [
        _module("", "other"),
        _module("embed", "embedding", **weight),
        _module("blocks", "other"),
        *(_module(f"blocks.{index}", "other", index) for index in (1, 0)),
        *(_module(f"blocks.{index}.linear", "mlp", index, **weight) for index in (1, 0)),
        _module("blocks.0.experts", "expert", 0),
        _module("blocks.0.experts.0", "expert", 0),
    ]
    return [{**row, "time": at} for row in found]


def _tensor(module: str, rank: int, **more: Any) -> Row:
    return {
        "name": f"{module}.weight",
        "module": module,
        "role": Role.GRAD.code,
        "phase": Phase.BACKWARD.code,
        "flags": REDUCED,
        "time": START,
        "step": 0,
        "numel_local": 4,
        "numel_global": 8,
        "placement": "R,S(0)",
        **more,
    }


def _tensors(rank: int) -> list[Row]:
    """A hybrid-sharded gradient (two halves, each on two ranks), a reduced one, a local one, an incomplete one."""
    half = rank % 2
    hist = [0] * BUCKETS
    hist[30 + half] = 4
    sharded = _tensor(
        "blocks.0.linear", rank, l2=3.0 + half, absmax=1.0 + half, zero_count=half, mean=half, std=0.0, log2_hist=hist
    )
    copied = _tensor("blocks.1.linear", rank, placement="", numel_local=8, l2=5.0, update_ratio=0.1)
    lonely = _tensor("embed", rank, l2=1.0) if rank == 0 else None
    own = _tensor("blocks.1.linear", rank, placement="", numel_local=8, l2=50.0 + rank, flags=LOCAL)
    second = _tensor("blocks.1.linear", rank, name="blocks.1.linear.bias", placement="", numel_local=8, l2=12.0)
    later = {**copied, "step": 1, "l2": 7.0}
    return [row for row in (own, sharded, copied, lonely, second, later) if row is not None]


def _hit(rank: int) -> Row:
    return {
        "time": START + rank,
        "breakpoint": 'big "one"',
        "predicate": "tensor.l2 > 4",
        "name": "blocks.0.linear.weight",
        "module": "blocks.0.linear",
        "role": Role.GRAD.code,
        "step": 0,
        "mode": "precise",
        "action": "capture",
        "count": 1,
        "seen": {"tensor.l2": 4.5, "rank": float(rank)},
        "seen_texts": {"module.type": "mlp"},
    }


@pytest.fixture(scope="module")
def sharded(front_process: FrontProcess) -> Iterator[Store]:
    """The run; rank 3 froze what the others train, and the model was told again later."""
    made = Store(front_process.url)
    migrate(made.client)
    gap = {"class": GapClass.NOT_CAPTURED.code, "cause": GapCause.SAMPLED, "data_kind": "tensor_stats", "start": START}
    batches: list[pb.Batch] = []
    for rank in RANKS:
        writer = Writer("sharded", rank)
        gone = _module("gone", "other")
        old = writer.seal(modules=[*_modules(is_trained=True), gone], gaps=[gap], tensor_stats=_tensors(rank))
        new = writer.seal(modules=_modules(is_trained=rank != 3, at=START + MS), hits=[_hit(rank)] if rank else [])
        batches += (old, new)
    insert(made.client, *batches)
    yield made
    made.drop()


@pytest_asyncio.fixture
async def api(sharded: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    async with over(sharded) as opened:
        yield opened


async def profile(api: httpx.AsyncClient, **query: Any) -> dict[str, dict[str, Any]]:
    """The items of a profile, by layer."""
    answer = await get(api, f"{RUN}/layer-profile", **query)
    assert [gap["cause"] for gap in answer["gaps"]] == ["sampled"]
    return {item["layer"]: item for item in answer["items"]}


async def test_a_model_has_a_node_for_each_module_layer_and_tensor_as_told_last(api: httpx.AsyncClient) -> None:
    answer = await get(api, f"{RUN}/model")

    nodes = {node["path"]: node for node in answer["nodes"]}
    assert [path for path, node in nodes.items() if node["kind"] == "layer"] == ["blocks.1", "blocks.0"]
    assert "gone" not in nodes
    assert nodes[""]["parent"] is None
    assert nodes[""]["time_ns"] == str(START + MS)
    assert nodes["embed.weight"] == {
        "kind": "tensor",
        "path": "embed.weight",
        "parent": "embed",
        "layer_index": None,
        "type": "embedding",
        "shape": [4, 2],
        "dtype": "float32",
        "is_trained": True,
    }


async def test_where_ranks_differ_the_others_are_told_beside_what_most_say(api: httpx.AsyncClient) -> None:
    nodes = {node["path"]: node for node in (await get(api, f"{RUN}/model"))["nodes"]}

    assert nodes["blocks"]["differs"] == []
    assert [other["ranks"] for other in nodes["embed"]["differs"]] == [[3]]


async def test_a_run_that_watched_nothing_has_no_model(client: httpx.AsyncClient) -> None:
    error = error_in(await client.get("/api/v1/runs/bright-otter/model"), status=404)

    assert error["code"] == "no_model"


async def test_a_shape_that_is_none_is_no_shape(own: Store) -> None:
    odd: Row = {"parameters": ["w"], "parameter_shapes": ["4x?"], "parameter_dtypes": ["float32"]}
    insert(own.client, Writer("sharded", 0).seal(modules=[{**_module("", "other"), **odd}]))
    async with over(own) as api:
        nodes = (await get(api, f"{RUN}/model"))["nodes"]

    assert [(node["path"], node.get("shape", "a module")) for node in nodes] == [("", "a module"), ("w", None)]


async def test_shards_make_up_a_whole_and_copies_of_them_count_once(api: httpx.AsyncClient) -> None:
    norms = await profile(api, step=0)
    zeros = await profile(api, step=0, statistic="zero_count")
    extremes = await profile(api, step=0, statistic="absmax")

    assert list(norms) == ["embed", "blocks.1", "blocks.0"]
    assert norms["blocks.0"]["value"] == pytest.approx(5.0)
    assert (norms["blocks.0"]["is_whole"], norms["blocks.0"]["ranks"]) == (True, 4)
    assert zeros["blocks.0"]["value"] == 1
    assert extremes["blocks.0"]["value"] == 2


async def test_means_deviations_and_quantiles_are_those_of_all_elements(api: httpx.AsyncClient) -> None:
    mean = await profile(api, step=0, statistic="mean")
    deviation = await profile(api, step=0, statistic="std")
    median = await profile(api, step=0, statistic="p50")

    assert mean["blocks.0"]["value"] == pytest.approx(0.5)
    assert deviation["blocks.0"]["value"] == pytest.approx(0.5)
    # One element is 0, four lie in [1, 2), four in [2, 4).
    assert median["blocks.0"]["value"] == pytest.approx(2 ** (3.5 / 4))


async def test_a_tensor_of_which_shards_are_missing_says_so(api: httpx.AsyncClient) -> None:
    norms = await profile(api, step=0)

    assert (norms["embed"]["value"], norms["embed"]["is_whole"]) == (1.0, False)


async def test_tensors_of_a_layer_are_put_together_and_a_reduced_gradient_goes_before_local_ones(
    api: httpx.AsyncClient,
) -> None:
    reduced = await profile(api, step=0)
    local = await profile(api, step=0, reduction="local")

    assert (reduced["blocks.1"]["value"], reduced["blocks.1"]["tensors"]) == (13.0, 2)
    assert (local["blocks.1"]["value"], local["blocks.1"]["low"], local["blocks.1"]["high"]) == (51.0, 50.0, 53.0)


async def test_what_cannot_be_put_together_is_the_middle_one_and_says_so(api: httpx.AsyncClient) -> None:
    answer = await get(api, f"{RUN}/layer-profile", statistic="update_ratio", step=0)

    assert answer["combining"] == "none"
    assert [item["value"] for item in answer["items"]] == [pytest.approx(0.1)]


async def test_a_range_is_one_value_a_layer_or_step_by_layer(api: httpx.AsyncClient) -> None:
    query: dict[str, Any] = {"from": 0, "to": 5, "rank": 0}
    by_layer = await profile(api, **query)
    by_step = await get(api, f"{RUN}/layer-profile", by="step", **query)
    latest = await get(api, f"{RUN}/layer-profile")

    assert (by_layer["blocks.1"]["low"], by_layer["blocks.1"]["high"], by_layer["blocks.1"]["steps"]) == (7.0, 13.0, 2)
    assert [(item["step"], item["layer"]) for item in by_step["items"]] == [
        *((0, layer) for layer in ("embed", "blocks.1", "blocks.0")),
        (1, "blocks.1"),
    ]
    assert (latest["from"], latest["to"], len(latest["items"])) == (1, 1, 1)


@pytest.mark.parametrize(
    "query", [{"statistic": "l3"}, {"role": "gradient"}, {"step": 1, "from": 1}, {"from": 3, "to": 1}]
)
async def test_a_profile_of_nothing_is_refused(api: httpx.AsyncClient, query: dict[str, Any]) -> None:
    error_in(await api.get(f"{RUN}/layer-profile", params=query), status=422)


async def test_hits_are_listed_with_what_their_condition_saw(api: httpx.AsyncClient) -> None:
    hits = await walked(api, f"{RUN}/hits", limit=2, breakpoint='big "one"', path="blocks.0.linear.weight")

    assert [hit["rank"] for hit in hits] == [1, 2, 3]
    assert hits[0]["seen"] == {"module.type": "mlp", "tensor.l2": 4.5, "rank": 1.0}
    assert (hits[0]["mode"], hits[0]["action"], hits[0]["role"], hits[0]["count"]) == ("precise", "capture", "grad", 1)


async def test_hits_are_asked_by_what_was_seen(api: httpx.AsyncClient) -> None:
    query = 'hit.seen."rank" > 1 and hit.seen."module.type" == "mlp" | select hit.name, hit.seen."tensor.l2"'
    answer = (await api.post("/api/v1/tql", json={"query": query, "run": "sharded"})).json()

    assert [item["hit.seen.tensor.l2"] for item in answer["items"]] == ["4.5", "4.5"]
