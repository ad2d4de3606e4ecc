"""The demo: what it finds by queries is what was wrong, and it leaves nothing behind."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ground.processes import Child, alive, answers, descendants, python
from tests.ground.stacks import Stack, clean_environ

pytestmark = pytest.mark.timeout(400)


def run_demo(folder: Path, *options: str, home: Path) -> dict[str, Any]:
    """Runs it to its end; gives the document it wrote."""
    file = folder / "demo.json"
    command = python("rankscope", "demo", "--exit", "--json", file, *options)
    demo = Child(command, name="demo", folder=folder, environ=clean_environ(RANKSCOPE_HOME=str(home)))
    started: set[int] = set()

    def ended() -> bool:
        started.update(descendants(demo.pid))
        return demo.returncode is not None

    try:
        demo.await_that(ended, timeout_s=350, what="end")
        assert demo.returncode == 0, demo.output()
        assert not [pid for pid in started if alive(pid)]
    finally:
        demo.stop()
    return dict(json.loads(file.read_text()))


def assert_agreement(document: dict[str, Any]) -> None:
    """What was found is what was injected; the step since when, within 3."""
    injected, found = document["injected"], document["found"]
    assert found["nonfinite"] == injected["nonfinite"]
    assert found["straggler"]["rank"] == injected["straggler"]["rank"]
    assert found["straggler"]["phase"] == injected["straggler"]["phase"]
    assert abs(found["straggler"]["since_step"] - injected["straggler"]["since_step"]) <= 3


def test_a_demo_by_itself_finds_what_is_wrong_and_leaves_no_process_and_no_port(tmp_path: Path) -> None:
    home = tmp_path / "home"

    document = run_demo(tmp_path, "--seed", "1", home=home)

    assert_agreement(document)
    assert not (home / "up.json").exists()


def test_a_demo_beside_a_running_stack_uses_it_and_leaves_it(stack: Stack, tmp_path: Path) -> None:
    document = run_demo(tmp_path, "--seed", "2", home=stack.home)

    assert_agreement(document)
    assert answers(int(stack.query.rpartition(":")[2]))
    assert stack.get(f"/runs/{document['run']}/completeness")["complete"]


def test_without_faults_nothing_is_reported(stack: Stack, tmp_path: Path) -> None:
    document = run_demo(tmp_path, "--no-faults", home=stack.home)

    assert document["injected"] == {"straggler": None, "nonfinite": None}
    assert document["found"] == {"straggler": None, "nonfinite": None}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_what_is_found_is_what_was_injected(seed: int, stack: Stack, tmp_path: Path) -> None:
    assert_agreement(run_demo(tmp_path, "--seed", str(seed), home=stack.home))
