"""The watched model as a graph of modules, layers and tensors."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_query_api.answers import Json, conventional, json_answer, json_of_rows, moment
from rankscope_query_api.errors import NotFoundError
from rankscope_query_api.layers import is_block
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launch_named, launches_of, store_of, writing_of
from rankscope_query_api.values import Record, RunKey

router = APIRouter(prefix=PREFIX, tags=["tensors"])

MOST_MODULES = 100_000
"""Most descriptions of modules in one answer."""


_MOST_DIGITS = 19
"""Of one size: what 64 bits hold."""


class ModelQuery(InProject):
    """Which launch."""

    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: the latest.")


@router.get("/runs/{run}/model")
async def show_model(request: Request, run: Run, *, query: Annotated[ModelQuery, Query()]) -> Response:
    """Shows the model as it was described last: a node for each module, layer and parameter, parents before children.

    A path that ranks describe differently has `differs`: what the others say, with their ranks.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    launch = launch_named(launches, query.launch, among=await store.model.launches(key, of_tensors=False))
    if launch is None:
        hint = "watch one in the training script: rankscope.watch(model)"
        raise NotFoundError(f"no process of run {run!r} has told of a model", hint=hint, code="no_model")
    rows = await store.model.modules(key, launch.launch_id, limit=MOST_MODULES)
    return await writing_of(request).written(lambda: _shown(key, launch.launch_id, rows=rows))


def _shown(key: RunKey, launch: str, *, rows: Sequence[Record]) -> Response:
    """The answer; a mixture of experts has tens of thousands of modules."""
    said: dict[str, Json] = {
        "run_id": key.run,
        "launch_id": launch,
        "ranks": sorted({rank for row in rows for rank in row["ranks"]}),
        "truncated": len(rows) == MOST_MODULES,
    }
    return json_answer({**said, "nodes": json_of_rows(map(conventional, _nodes(rows)))})


def _nodes(rows: Sequence[Record]) -> Iterator[Mapping[str, Json]]:
    indexes = {row["path"]: row["layer_index"] for row in rows}
    for path, same in groupby(rows, key=lambda row: row["path"]):
        first, *others = same
        differing = [{"ranks": row["ranks"], **_module(row)} for row in others]
        kind = "layer" if is_block(first, indexes) else "module"
        shown: dict[str, Json] = {"kind": kind, "path": path, **_module(first), "differs": differing}
        yield shown
        yield from _tensors(first)


def _module(row: Record) -> dict[str, Json]:
    return {
        "parent": row["parent"] if row["path"] else None,
        "class": row["class"],
        "type": row["type"],
        "layer_index": row["layer_index"],
        "aliases": row["aliases"],
        **moment("time", row["last_time"]),
    }


def _tensors(row: Record) -> Iterator[Mapping[str, Json]]:
    names = row["parameters"]
    # Agents before schema 4 did not say which are trained.
    trainable = [bool(one) for one in row["parameter_trainable"]] or [None] * len(names)
    columns = (names, row["parameter_shapes"], row["parameter_dtypes"], trainable)
    for name, shape, dtype, is_trained in zip(*columns, strict=True):
        yield {
            "kind": "tensor",
            "path": f"{row['path']}.{name}" if row["path"] else name,
            "parent": row["path"],
            "layer_index": row["layer_index"],
            "type": row["type"],
            "shape": _sizes(shape),
            "dtype": dtype,
            "is_trained": is_trained,
        }


def _sizes(shape: str) -> list[int] | None:
    """The sizes that a text such as `768x768` names; None: it is no shape."""
    sizes = shape.split("x") if shape else []
    is_shape = all(size.isdecimal() and len(size) <= _MOST_DIGITS for size in sizes)
    return [int(size) for size in sizes] if is_shape else None
