"""The page that doctor tells of a run: each part of it, also where there is nothing to say or nobody to ask."""

from typing import Any

import pytest

from rankscope.cli._run_page import page_lines, page_status, ranks_said
from tests.cli.test_run_health import ENDED, report

GAP: dict[str, Any] = {
    "class": "not_captured",
    "cause": "budget",
    "data_kind": "tensor_stats",
    "ranks": [0, 1, 3],
    "count": 1200,
    "details": ["more than 2.0% of step time"],
}


def clock(error: int | None, offset: int | None = None) -> dict[str, Any]:
    """One process's clock."""
    return {"rank": 0, "error_ns": error, "offset_ns": offset}


def page(**answers: Any) -> list[str]:
    """The lines below the completeness of a whole run."""
    whole = report([{"rank": 0, **ENDED}], status="finished", gaps=answers.pop("gaps", []))
    lines = page_lines({**whole, "clocks": None, "findings": None, "hang": None, **answers})
    return lines[lines.index("run a is complete: every emitted row is stored or declared lost") + 2 :]


def test_of_an_older_service_the_page_says_what_it_cannot_be_asked() -> None:
    assert page() == [
        "clocks     not known: the query service is older than this question",
        "gaps       none",
        "hang       not known: the query service is older than this question",
        "findings   not known: the query service is older than this question",
    ]


def test_a_well_run_has_a_line_for_each_part() -> None:
    clocks = {"items": [clock(400_000, -250_000_000), clock(90_000, 250_000_000), clock(None)], "warnings": []}
    nothing: dict[str, Any] = {"verdict": None, "warnings": []}

    assert page(clocks=clocks, hang=nothing, findings={"items": []}) == [
        "clocks     2 of 3 measured, to within 400 µs, 500 ms apart at most",
        "gaps       none",
        "hang       none",
        "findings   none is stored; `rankscope check RUN` judges the run now",
    ]


def test_where_no_clock_was_measured_the_page_says_what_that_means() -> None:
    clocks = {"items": [clock(None)], "warnings": ["no agent ran on node-1"]}

    assert page(clocks=clocks)[:2] == [
        "clocks     none was measured: times of different nodes are not ordered",
        "           warning: no agent ran on node-1",
    ]


def test_a_gap_is_told_with_its_reason_and_of_many_the_first_are() -> None:
    lines = page(gaps=[GAP] * 10)

    assert lines[1] == (
        "gaps       1,200 rows of tensor_stats not captured (budget), ranks 0-1, 3: more than 2.0% of step time"
    )
    assert lines[9] == "           and 2 more gaps"


def test_a_hang_and_findings_are_told_in_their_own_sentences_without_control_characters() -> None:
    verdict = {"sentence": "rank 1 did not come to all_reduce #812"}
    finding = {"severity": "error", "sentence": "rank 1 \x1b[31mbroke", "rule": "nonfinite_origin"}

    lines = page(hang={"verdict": verdict, "warnings": []}, findings={"items": [finding]})

    assert lines[2] == "hang       rank 1 did not come to all_reduce #812"
    assert lines[3] == "findings   error: rank 1 \\u001b[31mbroke (nonfinite_origin)"


@pytest.mark.parametrize(("hang", "status"), [(None, 0), ({"verdict": None}, 0), ({"verdict": {"kind": "x"}}, 4)])
def test_a_run_that_hangs_has_an_exit_status_of_its_own(hang: dict[str, Any] | None, status: int) -> None:
    whole = report([{"rank": 0, **ENDED}])

    assert page_status({**whole, "hang": hang}) == status


def test_missing_rows_come_before_a_hang() -> None:
    faulty = report([{"rank": 0, **ENDED}], faults=["1 batches are missing: seq 3"])

    assert page_status({**faulty, "hang": {"verdict": {"kind": "x"}}}) == 1


@pytest.mark.parametrize(
    ("ranks", "said"),
    [([3], "rank 3"), ([0, 1, 2, 7], "ranks 0-2, 7"), (list(range(0, 20, 2)), "ranks 0, 2, 4, 6, 8, 10, …")],
)
def test_ranks_are_said_in_stretches(ranks: list[int], said: str) -> None:
    assert ranks_said(ranks) == said
