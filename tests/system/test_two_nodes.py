"""Two nodes in network namespaces, each with a rank and an agent of its own; the link of one is cut and restored."""

import threading
from collections.abc import Iterator

import pytest

from tests.ground.namespaces import NodeSpace, NotAllowedError
from tests.ground.processes import free_port, python
from tests.system.parts import Part
from tests.system.site import Site
from tests.system.trial import Trial


@pytest.fixture
def nodes() -> Iterator[list[NodeSpace]]:
    """Two nodes with a link each; skipped where none can be made."""
    made: list[NodeSpace] = []
    try:
        made += [NodeSpace(1)]
        made += [NodeSpace(2)]
    except NotAllowedError as error:
        for node in made:
            node.remove()
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    for node in made:
        node.remove()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_a_node_that_was_cut_off_is_complete_after_its_link_is_back(
    own_site: Site, nodes: list[NodeSpace], seconds: int
) -> None:
    port = free_port()
    own_site.add_writer()
    own_site.add_gateway(listen=f"0.0.0.0:{port}", RANKSCOPE_INSECURE="1")
    trial = Trial(own_site, "two-nodes")
    try:
        for rank, node in enumerate(nodes):
            trial.sources[f"source-{rank}"] = rank_on(node, trial, rank=rank, port=port)
        trial.await_stored(5)

        nodes[1].cut()
        threading.Event().wait(seconds)
        alone = ranks_heard_of(trial, last_s=seconds / 2)
        nodes[1].restore()
        healed = trial.fresh()
        report = trial.settle()
        report.verdicts.append(trial.asked())
    finally:
        trial.stop()

    assert alone == [0]
    assert not healed.findings
    assert report.is_clean, report
    assert ranks_heard_of(trial, last_s=3_600) == [0, 1]


def rank_on(node: NodeSpace, trial: Trial, *, rank: int, port: int) -> Part:
    """A rank on a node, which starts the node's agent itself."""
    site = trial.site
    environ = {
        **site.environ,
        "RANKSCOPE_ENDPOINT": f"{node.here}:{port}",
        "RANKSCOPE_INSECURE": "1",
        "RANKSCOPE_SPOOL": str(site.folder / f"spool-{rank}"),
        "RANKSCOPE_HOME": str(site.folder / f"home-{rank}"),
        "RANKSCOPE_RUN_ID": trial.run,
        "RANKSCOPE_LAUNCH_ID": "5" * 32,
        "RANKSCOPE_RANK": str(rank),
        "RANKSCOPE_WORLD_SIZE": "2",
    }
    name = f"source-{rank}"
    command = node.command(python("tests.system.sources", name, trial.folder))
    part = Part(name, command, folder=trial.folder, environ=environ)
    part.start()
    return part


def ranks_heard_of(trial: Trial, *, last_s: float) -> list[int]:
    """The ranks of which rows recorded in the last seconds are stored."""
    query = """
        SELECT DISTINCT rank FROM scalars
        WHERE run_id = {run:String} AND time > toUnixTimestamp64Nano(now64(9)) - {last:Int64} ORDER BY rank"""
    parameters = {"run": trial.run, "last": int(last_s * 1e9)}
    return [rank for (rank,) in trial.site.store.client.query(query, parameters=parameters).result_rows]
