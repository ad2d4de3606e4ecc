"""A statistic across the layers of the model: at a step, over a range, or step by layer."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_query_api.answers import Json, conventional, json_answer, json_of_rows
from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.layers import Layer, Layers
from rankscope_query_api.profiles import STATISTICS, Combining, Part, combined, combining_of, of_tensor, over_steps
from rankscope_query_api.routes.asking import (
    MAX_STEP,
    PREFIX,
    InProject,
    Run,
    code_named,
    launch_named,
    launches_of,
    store_of,
    word_named,
    writing_of,
)
from rankscope_query_api.routes.model import MOST_MODULES
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.routes.tensors import ROLES
from rankscope_query_api.values import ProfileFilter, Record, RunKey

router = APIRouter(prefix=PREFIX, tags=["tensors"])

MOST_CELLS = 200_000
"""Most (step, tensor) pairs that are put together: 600 steps of a model of 330 tensors."""

Cells = dict[int, dict[Layer, list[Part]]]
"""Parts by step and layer."""


class ProfileQuery(InProject):
    """Which statistic, where."""

    statistic: str = Field(default="l2", description=f"One of {', '.join(STATISTICS)}.")
    role: str = Field(default="grad", description=f"What the tensors are: {', '.join(ROLES)}.")
    step: int | None = Field(default=None, ge=0, le=MAX_STEP, description="One step; nothing: the last that has it.")
    first: int | None = Field(default=None, alias="from", ge=0, le=MAX_STEP, description="First step of a range.")
    last: int | None = Field(default=None, alias="to", ge=0, le=MAX_STEP, description="Its last step.")
    by: Literal["layer", "step"] = Field(
        default="layer", description="layer: one value a layer, of a range the middle one; step: one a step and layer."
    )
    rank: list[int] = Field(default=[], max_length=1024, description="These ranks only; may be given again.")
    reduction: Literal["local", "reduced"] | None = Field(
        default=None, description="Gradients before or after the reduction; nothing: reduced where there are any."
    )
    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: the latest.")


@router.get("/runs/{run}/layer-profile")
async def show_layer_profile(request: Request, run: Run, *, query: Annotated[ProfileQuery, Query()]) -> Response:
    """Shows a statistic of the tensors of each layer, in the order of the model; parts of one tensor put together.

    `is_whole` is false where the value could not be put together, or parts are missing: then `low` and `high` are the
    least and the greatest of what is there. An empty `items` over a gap does not mean that nothing happened.
    """
    word_named(STATISTICS, query.statistic, parameter="statistic")
    role = code_named(ROLES, query.role, parameter="role") or 0
    store, key = store_of(request), RunKey(query.project, run)
    launches = await launches_of(store, key)
    launch = launch_named(launches, query.launch, among=await store.model.launches(key, of_tensors=True))
    launch_id = launch.launch_id if launch else ""
    bounds = _bounds(query)
    if bounds is None:
        at = await store.model.last_step(key, launch_id, statistic=query.statistic, role=role)
        bounds = (-1, -1) if at is None else (at, at)
    where = ProfileFilter(role, *bounds, ranks=query.rank, reduction=query.reduction or "")
    rows, modules = await asyncio.gather(
        store.model.profile(key, launch_id, statistic=query.statistic, where=where, limit=MOST_CELLS),
        store.model.modules(key, launch_id, limit=MOST_MODULES),
    )
    step = bounds[0] if bounds[0] == bounds[1] and bounds[0] >= 0 else None
    gaps = await store.runs.gaps(key, sections=("tensor_stats",), step=step)
    said: dict[str, Json] = {
        "run_id": run,
        "launch_id": launch_id,
        "statistic": query.statistic,
        "role": query.role,
        "combining": combining_of(query.statistic),
        "from": bounds[0] if rows else None,
        "to": bounds[1] if rows else None,
        "truncated": len(rows) == MOST_CELLS,
        "gaps": [gap_json(gap) for gap in gaps],
    }
    return await writing_of(request).written(lambda: _written(said, rows, layers=Layers(modules), query=query))


def _written(said: dict[str, Json], rows: Sequence[Record], *, layers: Layers, query: ProfileQuery) -> Response:
    items = map(conventional, _items(rows, layers, query=query))
    return json_answer({**said, "items": json_of_rows(items)})


def _bounds(query: ProfileQuery) -> tuple[int, int] | None:
    if query.step is not None and (query.first is not None or query.last is not None):
        raise InvalidRequestError("a step and a range are asked for at once", hint="give step, or from and to")
    if query.step is not None:
        return query.step, query.step
    if query.first is None and query.last is None:
        return None
    first, last = query.first or 0, MAX_STEP if query.last is None else query.last
    if first > last:
        raise InvalidRequestError(f"from is {first}, which is more than to, {last}", hint="swap them")
    return first, last


def _items(rows: Sequence[Record], layers: Layers, *, query: ProfileQuery) -> Iterator[Json]:
    how = combining_of(query.statistic)
    cells: Cells = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[row["step_number"]][layers.of(row["module"])].append(of_tensor(row, how))
    found: dict[int, dict[Layer, Part]] = {
        step: {layer: combined(parts, query.statistic) for layer, parts in at.items()} for step, at in cells.items()
    }
    if query.by == "layer":
        tensors = {layer: len(parts) for at in cells.values() for layer, parts in at.items()}
        by_layer: dict[Layer, list[Part]] = defaultdict(list)
        for at in found.values():
            for layer, part in at.items():
                by_layer[layer].append(part)
        for layer in sorted(by_layer, key=layers.place):
            steps = len(by_layer[layer])
            yield _item(layer, over_steps(by_layer[layer]) if steps > 1 else by_layer[layer][0], how=how) | {
                "tensors": tensors[layer],
                "steps": steps,
            }
        return
    for step, at in found.items():
        for layer in sorted(at, key=layers.place):
            yield {"step": step, **_item(layer, at[layer], how=how), "tensors": len(cells[step][layer])}


def _item(layer: Layer, part: Part, *, how: Combining) -> dict[str, Json]:
    shown: dict[str, Json] = {
        "layer": layer.path,
        "layer_index": layer.index,
        "layer_type": layer.type,
        "value": part.value,
        "low": part.low,
        "high": part.high,
        "numel": int(part.numel),
        "ranks": part.ranks,
        "is_whole": part.is_whole,
    }
    if how is Combining.HISTOGRAM:
        del shown["low"], shown["high"]
    return shown
