"""The list of tensors is in TQL's order, also where rows have no step."""

from typing import Any

import httpx

from rankscope_proto import columns
from tests.ground.stores import Store
from tests.proto.batches import SEALED, batch, insert
from tests.query_api.asking import ask, walked
from tests.query_api.tql.rows import Row, fill


def row(name: str, *, step: int | None, at: int, phase: int, microstep: int = 0) -> Row:
    """One row of `tensor_stats`."""
    return {
        "name": name,
        "role": 2,
        "dtype": "torch.float32",
        "step": step,
        "microstep": microstep,
        "phase": phase,
        "time": SEALED + at,
    }


async def test_rows_without_a_step_are_listed_by_time_whatever_their_phase(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    rows = [
        row("third", step=None, at=30, phase=1),
        row("first", step=None, at=10, phase=3, microstep=1),
        row("second", step=None, at=20, phase=2),
        row("fourth", step=0, at=9, phase=2),
        row("fifth", step=0, at=8, phase=3),
    ]
    made = batch(strings=[""])
    words = {"": 0}
    fill(made, columns.TENSOR_STATS, rows, words)
    made.strings[:] = words
    insert(own.client, made)

    listed = await walked(api_of_own, "/api/v1/runs/run-1/tensors", limit=1)
    asked: list[dict[str, Any]] = (await ask(api_of_own, "exists(tensor.name)")).json()["items"]

    names = ["first", "second", "third", "fourth", "fifth"]
    assert [item["name"] for item in listed] == names
    assert [item["name"] for item in asked] == names
