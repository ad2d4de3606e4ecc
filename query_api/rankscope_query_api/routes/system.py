"""Figures of nodes, devices and ranks' processes, as the agent processes sampled them."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field, field_validator

from rankscope import tql
from rankscope.tql.fields import FIELDS, Entity
from rankscope.tql.formatting import format_value
from rankscope.tql.nodes import Text
from rankscope_query_api.answers import iso_time, json_answer, moment_ns
from rankscope_query_api.routes.asking import PREFIX, Paged, Run, launches_of, store_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.routes.tql import answered
from rankscope_query_api.tql_sql import compile_query
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["runs"])

_TIME = FIELDS["system.time"][Entity.SYSTEM]
_SHOWN = "launch, node, system.name, system.device, system.value, system.time"


class SystemQuery(Paged):
    """Which figures."""

    name: str | None = Field(default=None, max_length=128, description="Name of the figure, as `cpu.busy`.")
    device: str | None = Field(
        default=None, max_length=128, description="What it is of, as `gpu0`, `eth0`, `rank 3`; empty: the node itself."
    )
    node: str | None = Field(default=None, max_length=512, description="Host name.")
    since: str | None = Field(
        default=None, alias="from", max_length=64, description="Least time: ISO-8601, or ns since the epoch."
    )
    until: str | None = Field(default=None, alias="to", max_length=64, description="Time before which, written alike.")

    @field_validator("since", "until")
    @classmethod
    def _is_a_time(cls, text: str | None) -> str | None:
        """The time as TQL writes it."""
        if text is None:
            return None
        try:
            time_ns = moment_ns(text)
        except (ValueError, OverflowError):
            raise ValueError(f"{text!r} is no time: write ISO-8601, or ns since the epoch") from None
        if not _TIME.low <= time_ns <= _TIME.high:
            raise ValueError(f"{text!r} is no time of a sample: write one of the years 2000 to 2199")
        return iso_time(time_ns)

    def tql(self) -> str:
        """The query that a reader can ask, too."""
        texts = {
            "system.name ==": self.name,
            "system.device ==": self.device or None,
            "node ==": self.node,
            "system.time >=": self.since,
            "system.time <": self.until,
        }
        asked = [f"{field} {format_value(Text(text))}" for field, text in texts.items() if text is not None]
        if self.device == "":
            asked.append("missing(system.device)")
        return f"{' and '.join(['exists(system.name)', *asked])} | select {_SHOWN}"


@router.get("/runs/{run}/system")
async def list_system(request: Request, run: Run, *, query: Annotated[SystemQuery, Query()]) -> Response:
    """Lists what the agent processes of a run's nodes sampled, by time, as the TQL query beside it does."""
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    text = query.tql()
    compiled = compile_query(
        tql.check(tql.parse(text)), project=key.project, run=key.run, limit=query.limit, after=query.after
    )
    page = await answered(store, compiled)
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("system_stats",), step=None)]
    return json_answer({**page.as_json(), "gaps": gaps, "query": text})
