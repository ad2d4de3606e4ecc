"""The way a trainer's rows really go: spool, agent, gateway with keys, store; and a backlog beside live data."""

import bisect
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rankscope_proto.keys import EVERY_PROJECT, KeyFile, Scope
from tests.bench.load import KINDS, Kind
from tests.bench.report import Report
from tests.bench.spooler import Plan
from tests.bench.test_ingest import COUNT, TARGETS, WINDOW_S, WORDS, inserted_directly
from tests.bench.usage import cpu_s, label, rss_mib
from tests.ground.processes import Children, python
from tests.ground.stacks import Stack, clean_environ

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

SHARE = 0.7
"""Of what the ingest tier must take without spool, agent and keys."""

AGENT_MIB = 150
LIVE_PAUSE_S = 1.0
BACKLOG_BATCHES = 150
LIVE_ROWS_PER_S = 8 * 2_000 / LIVE_PAUSE_S

LOOK_S = 0.2
"""Between looks at what is visible: each is two queries over all rows, on the cores that insert them."""


class Site:
    """A stack that asks for keys, and a node with its agent.

    Args:
        folder: For all files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        home = folder / "home"
        home.mkdir()
        self.key, _ = KeyFile(folder / "keys.json").create([EVERY_PROJECT], [Scope.INGEST, Scope.READ])
        self.stack = Stack(home, settings={"RANKSCOPE_KEYS": str(folder / "keys.json")})
        self.children = Children(folder)
        self.root = folder / "spool"

    def start_agent(self) -> int:
        """The agent's process id."""
        command = python("rankscope", "agent", "--spool", self.root)
        self.agent = self.children.start(command, name="agent", environ=clean_environ(RANKSCOPE_HOME=str(self.folder)))
        return self.agent.pid

    def plan(self, run: str, kind: Kind, *, batches: int = 0, pause_s: float = 0.0) -> Plan:
        """What ranks of this node append."""
        log = str(self.folder / f"{run}.txt") if pause_s else ""
        return Plan(str(self.root), self.stack.gateway, self.key, run, kind, batches=batches, pause_s=pause_s, log=log)

    def visible(self, run: str, kind: Kind) -> int:
        """Rows of the run that a query counts now."""
        answer = httpx.post(
            f"{self.stack.query}/api/v1/tql",
            json={"query": COUNT[kind], "run": run},
            headers={"authorization": f"Bearer {self.key}"},
            timeout=30,
        )
        if answer.status_code == 404:  # nothing of the run is there yet
            return 0
        answer.raise_for_status()
        return sum(int(item["count"]) for item in answer.json()["items"])

    def stop(self) -> None:
        """Ends everything."""
        self.children.stop()
        self.stack.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A fresh one."""
    made = Site(tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_visible_over_spool_and_agent(kind: Kind, site: Site, report: Report) -> None:
    direct = inserted_directly(site.stack.home, kind)
    run = f"bench-{kind}"
    site.root.mkdir()
    agent = site.start_agent()
    ranks = site.children.start(site.plan(run, kind).command(), name="ranks")
    ranks.await_that(lambda: site.visible(run, kind) > 0, what="first rows visible")

    pids = {label(pid): pid for pid in site.stack.processes()} | {"ranks": ranks.pid, "agent": agent}
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    first, started, memory = site.visible(run, kind), time.monotonic(), [rss_mib(agent)]

    def is_over() -> bool:
        memory.append(rss_mib(agent))
        return time.monotonic() - started >= WINDOW_S

    ranks.await_that(is_over, what="the window's end")
    last, elapsed = site.visible(run, kind), time.monotonic() - started
    spent = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}

    rate = (last - first) / elapsed
    title = f"{WORDS[kind]}, over spool and agent, with keys"
    report.judge(title, rate, "rows/s", sense="at least", target=SHARE * TARGETS[kind])
    report.add("  over straight into landing", rate / direct.rate, "")
    report.judge("  agent, 8 ranks", max(memory), "MiB RSS", sense="at most", target=AGENT_MIB)
    for name, seconds in sorted(spent.items()):
        report.add(f"  CPU of {name}", seconds / (last - first) * 1e6, "µs/row")


def test_a_backlog_drains_beside_live_data(site: Site, report: Report) -> None:
    site.root.mkdir()
    filler = site.children.start(site.plan("backlog", "tensor_stats", batches=BACKLOG_BATCHES).command(), name="filler")
    assert filler.wait(300) == 0
    rows = BACKLOG_BATCHES * 8 * 2_000
    plan = site.plan("live", "tensor_stats", pause_s=LIVE_PAUSE_S)
    live = site.children.start(plan.command(), name="live")
    agent = site.start_agent()
    live.await_that(lambda: site.visible("live", "tensor_stats") > 0, what="first live rows visible")
    first, started = site.visible("backlog", "tensor_stats"), time.monotonic()

    behind, memory, looked = [0.0], [rss_mib(agent)], [0.0]

    def is_drained() -> bool:
        memory.append(rss_mib(agent))
        if time.monotonic() - looked[-1] < LOOK_S:
            return False
        looked.append(time.monotonic())
        behind.append(seconds_behind(Path(plan.log), site.visible("live", "tensor_stats")))
        return site.visible("backlog", "tensor_stats") >= rows

    live.await_that(is_drained, timeout_s=600, what="the backlog drained")
    rate = (rows - first) / (time.monotonic() - started)

    report.judge("a backlog beside live data", rate / LIVE_ROWS_PER_S, "× live", sense="at least", target=5)
    report.judge("  live rows behind meanwhile", max(behind), "s", sense="at most", target=3)
    report.judge("  agent, 8 live and 8 left spools", max(memory), "MiB RSS", sense="at most", target=AGENT_MIB)


def seconds_behind(log: Path, visible: int) -> float:
    """How long ago the first row was appended that is not visible; 0.0: all are."""
    lines = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 1]
    place = bisect.bisect_right([int(rows) for _, rows in lines], visible)
    return time.monotonic() - float(lines[place][0]) if place < len(lines) else 0.0
