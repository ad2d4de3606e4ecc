"""The whole way: what a killed trainer left open is in the store once, and the run reads as whole and as over."""

import os
import secrets
import signal
from typing import Any

import httpx

from tests.agent.agent.dying import OPEN, TRAINING, Dying
from tests.ground.agents import agent_pid
from tests.ground.processes import wait_until
from tests.ground.stacks import Stack


def source_of(run: str) -> str:
    return TRAINING.replace('"chars", run_id="r"', f'"default", run_id="{run}"')


def rows_of(stack: Stack, run: str) -> dict[str, dict[str, Any]]:
    """The spans of a run by name; each is there once."""
    try:
        found = stack.tql("exists(span.name)", run=run)
    except httpx.HTTPStatusError as error:
        if error.response.status_code != 404:
            raise
        return {}  # no row of the run is there yet
    assert len({row["name"] for row in found}) == len(found), found
    return {row["name"]: row for row in found}


def test_trainer_and_agent_killed_leave_each_open_span_in_the_store_once(stack: Stack) -> None:
    run = f"killed-{secrets.token_hex(4)}"
    trainer = Dying(stack.home, source_of(run), {})
    trainer.await_left(OPEN)
    trainer.await_sealed("ended first")
    agent = agent_pid(trainer.root)
    assert agent is not None
    os.kill(agent, signal.SIGKILL)
    trainer.kill()

    again = Dying(stack.home, source_of(f"{run}-next"), {})  # brings an agent with it
    try:
        wait_until(lambda: rows_of(stack, run).keys() >= OPEN, what="be stored")
    finally:
        again.say("finish")
        again.kill()

    rows = rows_of(stack, run)
    statuses = {name: row["status"] for name, row in rows.items()}
    assert statuses == {**dict.fromkeys(OPEN, "interrupted"), "ended first": "ok"}
    assert {row["rank"] for row in rows.values()} == {3}
    found = stack.get(f"/runs/{run}/completeness")
    assert {section["section"]: section["missing"] for section in found["sections"] if section["missing"]} == {}
    assert sum(section["lost"] for section in found["sections"]) == 0
