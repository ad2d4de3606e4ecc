"""From a request to what the query service answers, through spool, gateway, broker, writer and store."""

import uuid
from typing import Any

import httpx
import pytest

from tests.agent.front.clients import CHILD, SPAN, TRACE, Sender, event, whole
from tests.ground.processes import wait_until
from tests.ground.stacks import Stack


@pytest.fixture
def run() -> str:
    return f"http-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def sender(stack: Stack, run: str) -> Sender:
    return Sender(stack.ingest, run=run)


def traces_of(stack: Stack, run: str) -> list[dict[str, Any]]:
    """The traces of a run; none where it is not known yet."""
    try:
        return list(stack.get(f"/runs/{run}/traces")["items"])
    except httpx.HTTPStatusError as error:
        if "unknown_run" not in str(error):
            raise
        return []


def test_events_sent_in_pieces_are_one_trace_with_ranks_and_steps(stack: Stack, run: str, sender: Sender) -> None:
    root, root_end = whole(rank=3, step=42, attributes={"env": "CartPole-v1"})
    child, child_end = whole(CHILD, parent_span_id=SPAN, name="policy.forward", kind="model", rank=3, step=42)

    assert sender.post(root, child).status_code == 200
    for _ in range(2):
        assert sender.post(child_end, key="k").json()["inserted"] == 1
    assert sender.post(root_end).status_code == 200
    wait_until(lambda: [trace["spans"] for trace in traces_of(stack, run)] == [2], what="both spans are stored")

    (listed,) = traces_of(stack, run)
    detail = stack.get(f"/runs/{run}/traces/{TRACE}")
    assert (listed["name"], listed["kind"], listed["status"]) == ("rollout episode 42", "rollout", "ok")
    assert (listed["ranks"], listed["first_step"], listed["kinds"]) == ([3], 42, {"rollout": 1, "model": 1})
    assert [(span["name"], span["attributes"]) for span in detail["items"]] == [
        ("rollout episode 42", {"env": "CartPole-v1"})
    ]
    assert run in [one["run_id"] for one in stack.get("/runs")["items"]]


def test_a_span_that_is_open_is_shown_running_until_it_ends(stack: Stack, run: str, sender: Sender) -> None:
    def is_shown(status: str) -> bool:
        return [trace["status"] for trace in traces_of(stack, run)] == [status]

    sender.post(event(1, "started"))
    wait_until(lambda: is_shown("running"), what="the trace is running")

    sender.post(whole()[1])

    wait_until(lambda: is_shown("ok"), what="the trace has ended")
