"""`rankscope agent --http`: where it listens is said, and an agent that ends by itself does not listen."""

import json
from pathlib import Path

import httpx

from tests.agent.agent.agents import AgentProcess
from tests.ground.processes import Children

NOWHERE = "127.0.0.1:1"


def test_the_agent_says_where_it_takes_requests(children: Children, tmp_path: Path) -> None:
    options = ("--http", "127.0.0.1:0", "--json")
    agent = AgentProcess(children, tmp_path / "spool", endpoint=NOWHERE, options=options)

    agent.child.await_that(lambda: agent.child.output().rstrip().endswith("}"), what="say where")

    url = json.loads(agent.child.output())["http"]
    assert httpx.get(f"{url}/healthz").status_code == 200


def test_an_agent_that_a_rank_started_ends_by_itself_whatever_the_environment_says(
    children: Children, tmp_path: Path
) -> None:
    agent = AgentProcess(
        children,
        tmp_path / "spool",
        endpoint=NOWHERE,
        options=("--exit-when-idle",),
        environ={"RANKSCOPE_HTTP_LISTEN": "127.0.0.1:0"},
    ).await_ready()

    assert "no HTTP ingest: this agent ends when nothing is left to send" in agent.child.output()
    assert "/traces/events" not in agent.child.output()


def test_an_address_that_must_not_be_listened_on_ends_it_with_the_reason(children: Children, tmp_path: Path) -> None:
    agent = AgentProcess(children, tmp_path / "spool", endpoint=NOWHERE, options=("--http", "0.0.0.0:0"))

    assert agent.child.wait() != 0
    assert "--http 0.0.0.0 is refused" in agent.child.output()
