"""The demo: a real training whose faults are found from queries alone, and whose data can be asked afterwards."""

import json
import os
import pty
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest

from rankscope import _discovery
from tests.cli.programs import Answer, rankscope
from tests.ground.processes import Child, alive, descendants, python, wait_until
from tests.ground.stacks import clean_environ

pytestmark = pytest.mark.timeout(900)
"""Each may train, on a machine that trains for others too; every wait in here has its own bound below this."""

PATIENCE_S = 240.0
SINCE_STEP_TOLERANCE = 3
ANY_PORTS = ("--query-port", "0", "--gateway-port", "0", "--http-port", "0")
NO_USER = {"HOME": "", "XDG_DATA_HOME": ""}


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo that ran to its end, and the folder it left."""

    home: Path
    answer: Answer
    written: Any

    @property
    def run(self) -> str:
        return str(self.written["run"])

    def ask(self, *arguments: str) -> Answer:
        return rankscope(*arguments, home=self.home)


def demo(home: Path, *options: str) -> Demo:
    """`rankscope demo --exit` without a terminal, and without HOME."""
    path = home.with_name(f"{home.name}.json")
    answer = rankscope("demo", "--exit", "--json", str(path), *options, home=home, environ=NO_USER)
    assert answer.status == 0, answer.stderr
    return Demo(home, answer, json.loads(path.read_text()))


@pytest.fixture(scope="module")
def ill(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return demo(tmp_path_factory.mktemp("demo") / "home", "--seed", "1")


@pytest.fixture(scope="module")
def served(ill: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The same demo's data in a folder that a server runs over: a command that finds none opens the store itself.

    What is not there is asked without it: for a row that may be on its way a server is asked again for 5 s.
    """
    folder = tmp_path_factory.mktemp("served")
    home = Path(shutil.copytree(ill.home, folder / "home", symlinks=True))
    server = Child(
        python("rankscope", "up", *ANY_PORTS), name="up", folder=folder, environ=clean_environ(RANKSCOPE_HOME=str(home))
    )
    try:
        server.await_that(lambda: _discovery.read(home) is not None, timeout_s=PATIENCE_S, what="get ready")
        yield Demo(home, ill.answer, ill.written)
    finally:
        server.stop()


@dataclass(frozen=True, slots=True)
class Stayed:
    """A demo on a terminal that stayed until Ctrl-C, in the folder of a server that ran before.

    Attributes:
        status: Its exit status.
        said: What the terminal showed.
        written: What it wrote with --json.
        server: The server's process id.
        is_serving: Whether that lived after the demo.
    """

    status: int
    said: str
    written: Any
    server: int
    is_serving: bool


@pytest.fixture(scope="module")
def stayed(tmp_path_factory: pytest.TempPathFactory) -> Stayed:
    folder = tmp_path_factory.mktemp("stayed")
    home, path = folder / "home", folder / "found.json"
    server = int(rankscope("up", *ANY_PORTS, "--detach", "--wait-ready", "--json", home=home).json["pid"])
    command = python("rankscope", "demo", "--steps", "40", "--seed", "2", "--json", path)
    try:
        status, said = on_a_terminal(command, home=home, until="Ctrl-C to stop")
        return Stayed(status, said, json.loads(path.read_text()), server, alive(server))
    finally:
        os.kill(server, signal.SIGTERM)
        wait_until(lambda: not alive(server), timeout_s=PATIENCE_S, what="the server has ended")


def assert_found_what_was_injected(written: Any) -> None:
    found, injected = written["found"], written["injected"]
    assert found["nonfinite"] == injected["nonfinite"]
    assert abs(found["straggler"]["since_step"] - injected["straggler"]["since_step"]) <= SINCE_STEP_TOLERANCE
    for what in ("rank", "phase"):
        assert found["straggler"][what] == injected["straggler"][what]


def test_the_demo_finds_what_was_injected(ill: Demo) -> None:
    assert set(ill.written) == {"run", "injected", "found"}
    assert set(ill.written["found"]["straggler"]) == {"rank", "since_step", "phase"}
    assert set(ill.written["found"]["nonfinite"]) == {"rank", "step", "layer"}
    assert_found_what_was_injected(ill.written)


def test_the_demo_tells_its_finding_and_how_to_go_on(ill: Demo) -> None:
    said = ill.answer.stdout
    found = ill.written["found"]

    assert (
        f"rank {found['straggler']['rank']} made the others wait since step {found['straggler']['since_step']}" in said
    )
    assert f"rank {found['nonfinite']['rank']}, step {found['nonfinite']['step']}" in said
    assert f"/api/v1/runs/{ill.run}" in said
    assert said.count("rankscope query") + said.count("rankscope trace") >= 3
    assert "Ctrl-C" not in said


def test_a_demo_with_another_seed_and_the_fewest_steps_finds_its_faults(stayed: Stayed) -> None:
    assert_found_what_was_injected(stayed.written)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["3", "4", "5"])
def test_a_demo_with_any_seed_finds_its_faults(seed: str, tmp_path: Path) -> None:
    assert_found_what_was_injected(demo(tmp_path / "home", "--seed", seed).written)


def test_a_demo_without_faults_finds_nothing_and_says_so(tmp_path: Path) -> None:
    healthy = demo(tmp_path / "home", "--no-faults", "--steps", "40")

    assert healthy.written["injected"] == {"straggler": None, "nonfinite": None}
    assert healthy.written["found"] == {"straggler": None, "nonfinite": None}
    assert "nothing found" in healthy.answer.stdout


def test_nothing_runs_after_the_demo_and_the_data_is_kept(ill: Demo) -> None:
    doctor = ill.ask("doctor", "--json").json["environment"]

    assert doctor["server"]["query"] is None
    assert doctor["data_folder"]["holder"] is None
    assert (ill.home / "store").is_dir()


def test_the_kept_data_answers_tql(ill: Demo) -> None:
    answer = ill.ask("query", "tensor.nonfinite_count > 0 | first", "--json")

    (row,) = answer.json["items"]
    nonfinite = ill.written["injected"]["nonfinite"]
    assert answer.status == 0
    assert (row["rank"], row["step"], row["module"]) == (nonfinite["rank"], nonfinite["step"], nonfinite["layer"])


def test_a_page_of_rows_says_how_to_get_the_next(served: Demo) -> None:
    first = served.ask("query", "tensor.nonfinite_count > 0", "--limit", "2", "--json").json
    second = served.ask("query", "tensor.nonfinite_count > 0", "--limit", "2", "--after", first["next"], "--json").json
    shown = served.ask("query", "tensor.nonfinite_count > 0", "--limit", "2")

    assert first["returned"] == second["returned"] == 2
    assert first["items"] != second["items"]
    assert len(shown.stdout.splitlines()) == 3
    assert f"--after {first['next']}" in shown.stderr


def test_a_query_that_cannot_be_read_points_at_the_place_and_is_status_2(served: Demo) -> None:
    shown = served.ask("query", "tensor.l3 > 1")
    document = served.ask("query", "tensor.l3 > 1", "--json")

    lines = shown.stderr.splitlines()
    assert (shown.status, document.status) == (2, 2)
    assert lines[1:3] == ["  tensor.l3 > 1", "  ^^^^^^^^^"]
    assert document.error["position"] == {"line": 1, "column": 1, "length": 9}


def test_the_latest_run_and_its_last_step_are_traced_by_default(ill: Demo) -> None:
    shown = ill.ask("trace")
    document = ill.ask("trace", "--json").json

    assert f"run {ill.run}  step 59  4 ranks" in shown.stdout
    assert [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("├─")] == [
        "input",
        "forward",
        "backward",
    ]
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1, 2, 3]


def test_one_ranks_step_and_a_trace_by_its_id_are_drawn_too(served: Demo) -> None:
    of_rank = served.ask("trace", served.run, "--step", "5", "--rank", "2")
    trace_id = served.ask("trace", "--step", "5", "--json").json["trace_id"]
    by_id = served.ask("trace", "--trace", trace_id, "--json").json

    assert "step 5  rank 2" in of_rank.stdout
    assert {span["rank"] for span in by_id["items"]} == {0, 1, 2, 3}


@pytest.mark.parametrize("which", ["step", pytest.param("rank", marks=pytest.mark.slow), "id"])
def test_a_tree_that_is_cut_says_so_and_its_pages_make_the_whole(which: str, served: Demo) -> None:
    trace_id = served.ask("trace", "--step", "5", "--json").json["trace_id"]
    options = {"step": ["--step", "5"], "rank": ["--step", "5", "--rank", "2"], "id": ["--trace", trace_id]}[which]

    whole = served.ask("trace", *options, "--json").json
    first = served.ask("trace", *options, "--limit", "3", "--json").json
    rest = served.ask("trace", *options, "--after", first["next"], "--json").json
    shown = served.ask("trace", *options, "--limit", "3")

    assert {"items", "total", "returned", "truncated", "next", "warnings", "gaps"} <= set(first)
    assert (first["returned"], first["truncated"], first["total"]) == (3, True, whole["total"])
    assert first["items"] + rest["items"] == whole["items"]
    assert (whole["returned"], whole["truncated"], whole["next"]) == (whole["total"], False, None)
    assert f"3 rows of {whole['total']}; the next page: --after {first['next']}" in shown.stderr


@pytest.mark.parametrize(
    "wrong", [["runs", "--limit", "20000"], ["trace", "--trace", "zz"], ["trace", "--trace", "0" * 32, "--after", "x"]]
)
def test_what_the_service_refuses_as_a_wrong_call_is_status_2(wrong: list[str], served: Demo) -> None:
    answer = served.ask(*wrong, "--json")

    assert answer.status == 2
    assert answer.error["message"]


@pytest.mark.parametrize(
    "unknown",
    [["trace", "no-such-run"], ["trace", "--step", "999"], ["trace", "--trace", "0" * 32], ["doctor", "gone"]],
)
def test_what_is_not_there_is_status_3(unknown: list[str], ill: Demo) -> None:
    answer = ill.ask(*unknown, "--json")

    assert answer.status == 3
    assert not answer.stdout
    assert answer.error["hint"]


def test_runs_lists_the_run_and_doctor_finds_it_complete(served: Demo) -> None:
    listed = served.ask("runs", "--json").json["items"]
    doctor = served.ask("doctor", served.run, "--json")

    assert [run["run_id"] for run in listed] == [served.run]
    assert doctor.status == 0
    assert doctor.json["completeness"]["complete"] is True
    assert "is complete" in served.ask("doctor", served.run).stdout


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM, signal.SIGKILL]
)
def test_a_demo_that_is_ended_while_it_trains_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    home = tmp_path / "home"
    child = Child(
        python("rankscope", "demo", "--steps", "1000"),
        name="demo",
        folder=tmp_path,
        environ=clean_environ(RANKSCOPE_HOME=str(home)),
    )
    child.await_that(lambda: "step   0" in child.output(), timeout_s=PATIENCE_S, what="train")
    started = {child.pid, *descendants(child.pid)}

    child.signal(number)
    child.wait(timeout_s=PATIENCE_S)

    wait_until(lambda: not any(alive(pid) for pid in started), timeout_s=PATIENCE_S, what="all have ended")
    assert len(started) > 8
    assert _discovery.read(home) is None


def test_on_a_terminal_the_demo_stays_until_ctrl_c_and_a_server_that_ran_before_lives_on(stayed: Stayed) -> None:
    assert stayed.status == 0
    assert f"process {stayed.server}" in stayed.said
    assert stayed.is_serving


def on_a_terminal(command: Sequence[str | Path], *, home: Path, until: str) -> tuple[int, str]:
    """Runs a command with a terminal for its output, presses Ctrl-C once it said `until`: its status and its words."""
    ours, its = pty.openpty()
    with os.fdopen(ours, encoding="utf-8", errors="replace") as terminal:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=its, stderr=its, env=clean_environ(RANKSCOPE_HOME=str(home))
        )
        os.close(its)
        try:
            said = said_until(until, terminal)
            process.send_signal(signal.SIGINT)
            return process.wait(PATIENCE_S), said
        finally:
            process.kill()
            process.wait()


def said_until(words: str, terminal: TextIO) -> str:
    """What a terminal shows up to the words; all of it in an error where the program ends without them."""
    said = ""
    while words not in said:
        try:
            said += terminal.readline()
        except OSError as error:  # the program's side is closed
            raise AssertionError(f"{words!r} was not said:\n{said}") from error
    return said
