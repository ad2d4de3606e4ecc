"""`rankscope check` and `rankscope hang` over the real service."""

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli._check import status_of_check
from rankscope.cli._hang import stack_lines
from tests.cli.programs import rankscope
from tests.query_api import story


def test_a_rule_that_finds_nothing_ends_with_0_and_says_so(served: str, tmp_path: Path) -> None:
    answer = rankscope("check", story.RUN, "--rule", "loss_spike", "--url", served, home=tmp_path)

    assert answer.stdout.strip() == "no findings by 1 rule"
    assert answer.status == 5  # rank 3 lost rows
    assert "rows were lost (ring_full)" in answer.stderr


def test_a_run_that_no_agent_tells_of_has_no_verdict(served: str, tmp_path: Path) -> None:
    text = rankscope("hang", story.OTHER_RUN, "--url", served, home=tmp_path)
    told = json.loads(rankscope("hang", story.OTHER_RUN, "--json", "--url", served, home=tmp_path).stdout)

    assert (text.status, text.stdout.splitlines()[0]) == (0, "no hang")
    assert "no agent says" in text.stderr
    assert told["verdict"] is None


@pytest.mark.parametrize(
    ("has_fired", "is_judged", "gap", "status"),
    [(True, True, "lost", 4), (False, True, None, 0), (False, True, "not_captured", 0), (False, True, "lost", 5)],
)
def test_the_status_of_a_check(has_fired: bool, is_judged: bool, gap: str | None, status: int) -> None:
    gaps = [{"class": gap, "cause": "x"}] if gap else []
    answer: dict[str, Any] = {"has_fired": has_fired, "rules": [{"is_judged": is_judged}], "gaps": gaps}

    assert status_of_check(answer) == status
    assert status_of_check({**answer, "has_fired": False, "rules": [{"is_judged": False}]}) == 5


def test_a_stack_is_a_line_a_frame_and_text_stays_text() -> None:
    stack = [{"thread": "MainThread", "frames": ["load (data.py:7)"], "gil": True}]

    assert stack_lines(stack) == ["  thread MainThread (holds the interpreter)", "    load (data.py:7)"]
    assert stack_lines("torn") == ["  torn"]
    assert stack_lines(None) == []
