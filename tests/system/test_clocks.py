"""Three nodes whose clocks are wrong, each with an agent of its own: what is corrected of what their ranks recorded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.ranks.clocks import Correction, Moment, order
from rankscope_query_api.routes.clocks import correction_of
from rankscope_query_api.settings import Settings
from rankscope_query_api.values import RunKey
from tests.ground.processes import python, wait_until
from tests.system import clocks
from tests.system.clocks import Wrong
from tests.system.site import Site
from tests.system.trial import Trial

MS = 10**6
HOUR_S = 3600
WRONG = ((0.25, 50), (-0.25, -50), (2 * HOUR_S, 0))
"""Seconds that each node's clock is ahead, and parts in a million that it runs too fast."""

UNMEASURED = len(WRONG)
"""A rank of the same launch whose agent measures nothing: it is sent by hand afterwards."""

LAUNCH = "7" * 32


@dataclass(frozen=True, slots=True)
class Told:
    """A moment that a rank recorded.

    Attributes:
        rank: The rank.
        incarnation: Its process.
        wall_ns: The moment on its own wall clock.
        true_ns: The moment.
    """

    rank: int
    incarnation: str
    wall_ns: int
    true_ns: int


@dataclass(frozen=True, slots=True)
class Nodes:
    """What the nodes recorded, and what is known of their clocks."""

    run: str
    told: Sequence[Told]
    settings: Settings


@pytest.fixture(scope="module")
def nodes(running_site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Ranks that have recorded until their clocks were measured twice."""
    running_site.heal()
    trial = Trial(running_site, "clocks")
    folder = tmp_path_factory.mktemp("clocks")
    agents = [f"agent-of-{rank}" for rank in range(len(WRONG))]
    try:
        wrongs = [start(trial, folder, rank) for rank in range(len(WRONG))]
        trial.add_source(
            UNMEASURED,
            world_size=UNMEASURED + 1,
            RANKSCOPE_LAUNCH_ID=LAUNCH,
            RANKSCOPE_SPOOL=str(folder / "alone"),
        )
        wait_until(lambda: measured(trial) >= 2, what="be measured twice", timeout_s=120)
        trial.finish()
        running_site.add("drain", [*python("rankscope"), "drain", folder / "alone"]).child.wait(60)
        wait_until(lambda: len({one.rank for one in told(trial, wrongs)}) > UNMEASURED, what="be stored", timeout_s=60)
        settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": running_site.store.url})
        yield Nodes(trial.run, told(trial, wrongs), settings)
    finally:
        trial.stop()
        for name in agents:
            if name in running_site.parts:
                running_site.remove(name)
        running_site.parts.pop("drain", None)


def start(trial: Trial, folder: Path, rank: int) -> Wrong:
    """A node with a wrong clock: its agent, and a rank that leaves the shipping to it."""
    file, spool = folder / f"clock-{rank}", folder / f"spool-{rank}"
    wrong = clocks.move(file, WRONG[rank][0], ppm=WRONG[rank][1])
    more = {"RANKSCOPE_SPOOL": str(spool), "RANKSCOPE_HOME": str(folder / f"home-{rank}")}
    trial.site.add(f"agent-of-{rank}", [*python("tests.system.clocks", file), "agent"], **more)
    trial.site.source_program, usual = python("tests.system.clocks", file, "source"), trial.site.source_program
    trial.add_source(rank, world_size=UNMEASURED + 1, RANKSCOPE_LAUNCH_ID=LAUNCH, SOURCE_PAUSE_S="0.1", **more)
    trial.site.source_program = usual
    return wrong


def measured(trial: Trial) -> int:
    """How often the clock of each rank was measured, at least."""
    found = asked(trial, "SELECT count() AS times FROM clocks WHERE run_id = {run:String} GROUP BY of_hi, of_lo")
    return min((row[0] for row in found), default=0) if len(found) == len(WRONG) else 0


def told(trial: Trial, wrongs: Sequence[Wrong]) -> list[Told]:
    """What the ranks recorded, in order of time."""
    rows = asked(trial, "SELECT rank, lower(hex(incarnation)), time FROM scalars WHERE run_id = {run:String}")
    by_rank = [*wrongs, Wrong()]
    made = [Told(rank, who, at_ns, by_rank[int(rank)].true_ns(at_ns)) for rank, who, at_ns in rows]
    return sorted(made, key=lambda one: one.true_ns)


def asked(trial: Trial, statement: str) -> Sequence[Sequence[Any]]:
    """Rows of the store."""
    return trial.site.store.client.query(statement, parameters={"run": trial.run}).result_rows


@pytest_asyncio.fixture
async def correction(nodes: Nodes) -> Correction:
    """What is known of the clocks."""
    store = ClickHouseStore(ClickHouse(nodes.settings, Metrics()))
    found = await correction_of(store, RunKey("default", nodes.run), LAUNCH)
    await store.close()
    return found


def placed(nodes: Nodes, correction: Correction) -> list[tuple[Told, Moment]]:
    """What the ranks with a measured clock recorded, on one clock."""
    return [(one, correction.moment(one.incarnation, one.wall_ns)) for one in nodes.told if one.rank < UNMEASURED]


@pytest.mark.timeout(300)
async def test_a_corrected_time_is_the_true_one_up_to_its_error_and_a_millisecond(
    nodes: Nodes, correction: Correction
) -> None:
    apart = {one.rank: abs(one.wall_ns - one.true_ns) for one in nodes.told}
    assert min(apart[rank] for rank in range(len(WRONG))) > 200 * MS

    for one, moment in placed(nodes, correction):
        assert moment.error_ns is not None
        assert abs(moment.at_ns - one.true_ns) <= moment.error_ns + MS


@pytest.mark.timeout(300)
async def test_no_order_is_claimed_that_is_wrong_or_within_the_error(nodes: Nodes, correction: Correction) -> None:
    moments = placed(nodes, correction)
    said = [
        (order(first, second), first.clock == second.clock, abs(second.at_ns - first.at_ns), first, second)
        for (_, first), (_, second) in pairwise(moments)
    ]

    for claim, is_one_clock, apart_ns, first, second in said:
        assert claim in {"before", "unknown"}
        if not is_one_clock and claim == "before":
            assert apart_ns > (first.error_ns or 0) + (second.error_ns or 0)
    assert order(moments[0][1], moments[-1][1]) == "before"
    assert "before" in {claim for claim, is_one_clock, *_ in said if not is_one_clock}


@pytest.mark.timeout(300)
async def test_a_rank_that_no_agent_measured_has_no_place_and_the_answer_says_so(
    nodes: Nodes, correction: Correction
) -> None:
    one = next(one for one in nodes.told if one.rank == UNMEASURED)
    store = ClickHouseStore(ClickHouse(nodes.settings, Metrics()))
    transport = httpx.ASGITransport(create_app(store, nodes.settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
        answer = (await api.get(f"/api/v1/runs/{nodes.run}/clocks")).json()
    await store.close()

    assert correction.at(one.incarnation, one.wall_ns) is None
    assert answer["unmeasured_ranks"] == [UNMEASURED]
    assert f"rank {UNMEASURED}" in answer["warnings"][0]
    assert [item["clock_state"] for item in answer["items"]] == ["measured"] * len(WRONG) + ["unmeasured"]
    assert len({item["clock"] for item in answer["items"]}) == len(WRONG) + 1
