"""`rankscope traces` over a served story."""

from pathlib import Path

import pytest
import typer

from rankscope.cli._traces import step_range
from tests.cli.programs import rankscope
from tests.query_api import story
from tests.query_api.asking import ROLLOUT


def test_a_failed_trace_is_found_by_words_and_drawn_as_a_row(served: str, tmp_path: Path) -> None:
    words = ("traces", story.RUN, "--url", served, "--status", "error", "-q", "HARBOUR rollout", "--attribute")

    answer = rankscope(*words, "Engine=Harbour", "--step", "4:6", home=tmp_path)

    head, row = answer.stdout.splitlines()
    assert (answer.status, answer.stderr) == (0, "")
    assert head.split() == [
        *("trace_id", "start", "duration", "status", "kind", "name", "step", "spans", "errors", "tokens")
    ]
    assert row.split()[0] == ROLLOUT
    assert row.split()[-6:] == ["rollout", "rollout", "5", "2", "1", "-"]


def test_a_step_is_drawn_by_node_and_a_span_with_what_is_around_it(served: str, tmp_path: Path) -> None:
    step = rankscope("trace", story.RUN, "--step", "14", "--by", "node", "--url", served, home=tmp_path)
    around = ("--trace", ROLLOUT, "--around", f"{2:016x}")
    window = rankscope("trace", story.RUN, *around, "--url", served, home=tmp_path)
    mixed = rankscope("trace", story.RUN, "--around", f"{2:016x}", "--url", served, home=tmp_path)

    assert (step.status, step.stderr, window.status, window.stderr, mixed.status) == (0, "", 0, "", 2)
    assert sum("= node-" in line for line in step.stdout.splitlines()) == 2 * 6
    assert [line.split()[:3] for line in window.stdout.splitlines()[-2:]] == [
        *(["rollout", "900", "ms"], ["└─", "→", "search"])
    ]


def test_without_a_run_the_traces_of_a_project_are_listed_with_their_runs(served: str, tmp_path: Path) -> None:
    answer = rankscope("traces", "--url", served, "--from", "2026-11-01", "--limit", "3", "--json", home=tmp_path)

    assert {trace["run_id"] for trace in answer.json["items"]} == {story.RUN}
    assert (answer.json["returned"], answer.json["total"]) == (3, story.STEPS + 2)


def test_a_list_without_a_trace_says_so(served: str, tmp_path: Path) -> None:
    answer = rankscope("traces", story.RUN, "--url", served, "--kind", "checkpoint", home=tmp_path)

    assert (answer.status, answer.stdout) == (0, "no traces\n")


@pytest.mark.parametrize(
    ("text", "meant"), [(None, (None, None)), ("7", (7, 7)), ("7:9", (7, 9)), ("7:", (7, None)), (":9", (None, 9))]
)
def test_steps_are_one_or_a_range(text: str | None, meant: tuple[int | None, int | None]) -> None:
    assert step_range(text) == meant


@pytest.mark.parametrize("text", ["", "x", "1:x", "1:2:3"])
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no step and no range"):
        step_range(text)
