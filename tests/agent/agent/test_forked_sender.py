"""A child forked from a process that sends its spool itself: it cannot send, so the node's agent does, at once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.spool import SpoolHead, spools
from rankscope.testing import rows_of
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.agent.agents import AgentProcess
from tests.agent.agent.dying import dying
from tests.agent.gateways import ScriptedGateway
from tests.ground.processes import Children, wait_until

TRAINING = """
import os, sys
import rankscope
run = rankscope.init("chars", run_id="r", quiet=True)
run.log_metric("parent", 1)
run.flush()
if os.fork() == 0:
    run = rankscope.init("chars", run_id="own", quiet=True)
    run.log_metric("child", 1)
    print("open", flush=True)
    for line in sys.stdin:
        run.log_metric("child again", 1)
        run.flush()
        print("done", flush=True)
    rankscope.finish()
    os._exit(0)
os.wait()
"""


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


def metrics(gateway: ScriptedGateway) -> Counter[str]:
    """How often each metric was accepted."""
    batches = [Batch.FromString(one.payload) for one in gateway.accepted]
    return Counter(str(row["name"]) for batch in batches for row in rows_of(batch, "scalars"))


def test_a_child_that_cannot_send_leaves_its_spool_to_the_agent_of_the_folder_while_both_live(
    children: Children, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with dying(home, TRAINING, RANKSCOPE_AGENT="thread", RANKSCOPE_ENDPOINT=gateway.endpoint) as trainer:
        heads = [SpoolHead.read(folder) for folder in spools(trainer.root)]
        assert {head.run_id: head.sends_itself for head in heads} == {"r": True, "own": False}

        agent = AgentProcess(children, trainer.root, endpoint=gateway.endpoint).await_ready()
        trainer.say("go on")

        wait_until(lambda: metrics(gateway) == {"parent": 1, "child": 1, "child again": 1}, what="arrive once each")
        assert {spool["run_id"] for spool in agent.status()["spools"]} == {"own"}
