"""The trainer's side of the node's agent: whatever becomes of it, training goes on."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from rankscope import _launch_agent
from rankscope._attach import Attachment
from rankscope._host import process_space
from rankscope._identity import Identity
from rankscope.errors import ConfigError
from rankscope.spool import spools
from tests.agent.agents import GRANTED, ScriptedAgent, agents_ended
from tests.agent.programs import run_program
from tests.agent.spooled import rows_in
from tests.agent.test_init import NOWHERE, STEP
from tests.ground.agents import agent_pid
from tests.ground.processes import ROOT, alive, wait_until

WHO = Identity("p", "r", b"l" * 16, b"i" * 16, rank=1, world_size=2, node="n", pid=os.getpid(), boot_id="b")
REFUSED: dict[str, object] = {
    "claim": "refused",
    "holder": {"node": "n7", "pid": 77, "incarnation": "ab", "boot_id": "x"},
    "failure": "",
}

Attach = Callable[[], Attachment]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ScriptedAgent]:
    server = ScriptedAgent(tmp_path / "spool")
    yield server
    server.stop()


@pytest.fixture
def attach(tmp_path: Path) -> Iterator[Attach]:
    opened: list[Attachment] = []

    def attached() -> Attachment:
        opened.append(Attachment(tmp_path / "spool", WHO, start=None))
        return opened[-1]

    yield attached
    for attachment in opened:
        attachment.close()


def test_a_rank_is_claimed_with_all_that_the_gateway_asks(agent: ScriptedAgent, attach: Attach) -> None:
    assert attach().settle() == ""

    (request,) = agent.requests
    assert (request["op"], request["incarnation"], request["claim"]) == ("attach", (b"i" * 16).hex(), True)
    identity = cast("dict[str, object]", request["identity"])
    assert (identity["project"], identity["run_id"], identity["launch_id"]) == ("p", "r", (b"l" * 16).hex())
    assert (identity["rank"], identity["node"], identity["pid"]) == (1, "n", os.getpid())
    assert identity["boot_id"] == process_space()


def test_a_rank_that_a_living_process_holds_is_refused_by_name(agent: ScriptedAgent, attach: Attach) -> None:
    agent.answers.append(REFUSED)

    with pytest.raises(ConfigError, match="rank 1 of run r is held by process 77 on n7"):
        attach().settle()


def test_a_gateway_that_does_not_answer_is_no_error(agent: ScriptedAgent, attach: Attach) -> None:
    agent.answers.append({"claim": "unknown", "holder": None, "failure": "the gateway at g:1 does not answer"})

    assert attach().settle() == "the gateway at g:1 does not answer"


def test_without_an_agent_nothing_waits(attach: Attach) -> None:
    assert "no agent answers" in attach().settle()


def test_an_agent_that_is_silent_holds_the_start_up_for_a_bounded_time(
    agent: ScriptedAgent, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope._attach.SETTLE_S", 0.2)
    agent.answers.append(None)

    assert "does not answer" in attach().settle()


def test_an_agent_that_died_is_attached_to_again_when_it_is_back(agent: ScriptedAgent, attach: Attach) -> None:
    attachment = attach()
    attachment.settle()

    agent.drop()

    wait_until(lambda: len(agent.requests) == 2, what="attach again")
    assert attachment.settle() == ""


def test_a_refusal_that_comes_later_is_said_only(
    agent: ScriptedAgent, attach: Attach, caplog: pytest.LogCaptureFixture
) -> None:
    attach().settle()

    agent.say(REFUSED)

    wait_until(lambda: "goes on recording" in caplog.text, what="be said")
    agent.say(GRANTED)


def test_a_line_that_is_no_answer_ends_the_connection_and_nothing_else(agent: ScriptedAgent, attach: Attach) -> None:
    agent.answers.append({"surprise": 1})

    assert "no answer" in attach().settle()

    wait_until(lambda: len(agent.requests) == 2, what="attach again")


def test_the_end_of_a_run_gives_the_rank_up(agent: ScriptedAgent, tmp_path: Path) -> None:
    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=NOWHERE)

    assert ended.said[0].endswith(f"is recorded at {NOWHERE}")
    wait_until(lambda: agent.left == 1, what="leave")
    assert rows_in(tmp_path / "spool", "spans")


def test_a_taken_rank_ends_the_program_and_leaves_no_claim(agent: ScriptedAgent, tmp_path: Path) -> None:
    agent.answers.append(REFUSED)

    ended = run_program(STEP, tmp_path, RANKSCOPE_ENDPOINT=NOWHERE)

    assert ended.code == 1
    assert "rank 0 of run r is held by process 77 on n7" in ended.err
    wait_until(lambda: agent.left == 1, what="leave")
    assert list(spools(tmp_path / "spool")) == []


def test_a_forked_child_does_not_keep_the_parents_claim(agent: ScriptedAgent, tmp_path: Path) -> None:
    source = """
    import os, sys, time
    child = os.fork()
    if child == 0:
        os.closerange(0, 3)  # who reads this program's output waits for all who might write
        time.sleep(60)
    print(child, flush=True)
    os._exit(0)
    """

    ended = run_program(STEP + source.replace("\n    ", "\n"), tmp_path, RANKSCOPE_ENDPOINT=NOWHERE)

    child = int(ended.out)
    try:
        wait_until(lambda: agent.left == 1, what="leave")
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_an_agent_that_is_killed_is_started_again_by_its_trainer(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    source = """
    import os, signal, sys
    sys.path.insert(0, os.environ["TESTS"])
    from pathlib import Path
    from tests.ground.agents import agent_pid
    from tests.ground.processes import wait_until
    root = Path(os.environ["RANKSCOPE_HOME"]) / "spool"
    first = agent_pid(root)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: agent_pid(root) not in {None, first}, what="start another")
    """

    with agents_ended(root):
        ended = run_program(
            STEP + source.replace("\n    ", "\n"), tmp_path, RANKSCOPE_ENDPOINT=NOWHERE, TESTS=str(ROOT)
        )

        assert ended.code == 0, ended.err
        assert agent_pid(root) is not None


def test_four_ranks_that_begin_at_once_start_one_agent(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    told = {"RANKSCOPE_WORLD_SIZE": "4", "RANKSCOPE_LAUNCH_ID": "ab" * 16, "RANKSCOPE_ENDPOINT": NOWHERE}

    with agents_ended(root), ThreadPoolExecutor(4) as together:
        ranks = [together.submit(run_program, STEP, tmp_path, **told, RANKSCOPE_RANK=str(rank)) for rank in range(4)]

        assert [rank.result().code for rank in ranks] == [0] * 4
        assert (root / "agent.log").read_text().count("sends what lies in") == 1


def test_a_launched_program_is_nobodys_child_in_a_session_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (_launch_agent.LOG_BYTES + 1))
    program = (
        "import os, signal; print(os.getpid(), os.getppid(), os.getsid(0), os.getcwd(), "
        "signal.getsignal(signal.SIGTERM), flush=True)"
    )

    subprocess.run(
        [sys.executable, "-I", "-S", _launch_agent.__file__, log, sys.executable, "-c", program],
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    )

    wait_until(lambda: log.read_text().endswith("\n"), what="print")
    pid, parent, session, folder, handler = log.read_text().split()
    assert int(parent) != os.getpid()
    assert int(session) not in (os.getsid(0), int(pid))
    assert (folder, handler) == ("/", "0")
