"""A link that is slow is nobody's fault: all come in time, and it is the collective itself that takes long."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ground.namespaces import NodeSpace, NotAllowedError
from tests.ground.processes import Children, python
from tests.ground.stacks import Stack
from tests.ranks.faults import RANKS, Fault, Kind
from tests.ranks.launches import Nursery

SLOW_FROM, STEPS = 25, 60
COUNTS = 100_000
"""400 kB: at 20 Mbit/s it takes a second where it took milliseconds."""


@pytest.fixture
def node() -> Iterator[NodeSpace]:
    """A node for half of the ranks; skipped where none can be made, or its link not be limited."""
    try:
        made = NodeSpace(3)
    except NotAllowedError as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.remove()


@pytest.fixture
def apart(tmp_path: Path, children: Children) -> Iterator[Nursery]:
    """A nursery over a stack of its own, whose agent runs here: one that a rank there starts reaches no gateway."""
    (tmp_path / "home").mkdir()
    stack = Stack(tmp_path / "home")
    children.start(python("rankscope", "agent"), name="agent", environ=stack.environ)
    nursery = Nursery(tmp_path, stack)
    yield nursery
    nursery.stop()
    stack.stop()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_slow_link_charges_nobody_and_shows_as_transfer(apart: Nursery, node: NodeSpace) -> None:
    launch = apart.train("link", Fault(Kind.LINK, 0, SLOW_FROM), steps=STEPS, is_gated=True, over=node, counts=COUNTS)
    try:
        node.limit("20mbit")
        node.limit("1gbit")
    except NotAllowedError as error:
        pytest.skip(f"no limit on a link here: {error}")
    launch.await_seen()
    node.limit("20mbit")
    launch.open()
    launch.await_end()
    assert launch.statuses() == dict.fromkeys(range(RANKS), 0), apart.said(launch)
    launch.await_rows()

    before = launch.get(f"/stragglers?from=5&to={SLOW_FROM - 1}")
    after = launch.get(f"/stragglers?from={SLOW_FROM + 1}&to={STEPS - 1}")

    assert [item["rank"] for item in after["items"] if item["is_straggler"]] == []
    assert transfer_of(after) > 5 * transfer_of(before)
    assert launch.get("/hang")["verdict"] is None


def transfer_of(answer: dict[str, Any]) -> float:
    """What the transfer of a collective took on average, ns."""
    return int(answer["transfer_ns"]) / answer["collectives"]
