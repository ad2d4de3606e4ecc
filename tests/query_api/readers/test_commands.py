"""`rankscope query`, `sql` and `explain` over the real service: forms of output, carets, exit statuses."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from rankscope.cli import _errors
from rankscope.cli._verdict import Told
from rankscope.up import Body, UnreachableError
from tests.cli.programs import Answer, rankscope
from tests.query_api import story

NONFINITE = "tensor.nonfinite_count > 0"


class Service:
    """Runs commands against the service that tells the story."""

    def __init__(self, url: str, home: Path) -> None:
        self._url = url
        self._home = home

    def __call__(self, *arguments: str) -> Answer:
        return rankscope(*arguments, "--url", self._url, home=self._home)


@pytest.fixture
def call(served: str, tmp_path: Path) -> Service:
    return Service(served, tmp_path)


def test_rows_are_a_table_that_shows_first_what_the_query_names(call: Service) -> None:
    answer = call("query", f"{NONFINITE} | count() by rank", "--run", story.RUN)

    assert answer.status == 0
    assert answer.stdout.splitlines()[:2] == ["rank  count", "0     1"]


def test_csv_is_csv_and_nothing_else(call: Service) -> None:
    answer = call("query", f"{NONFINITE} | select rank, step", "--csv", "--limit", "2")

    assert answer.stdout.splitlines() == ["rank,step", "1,14", "0,14"]
    assert "2 of 5 rows; the next page: --after " in answer.stderr


def test_an_arrow_stream_goes_to_a_file(call: Service, tmp_path: Path) -> None:
    answer = call("query", NONFINITE, "--arrow", str(tmp_path / "rows.arrow"))

    assert (answer.status, answer.stdout) == (0, "")
    assert pa.ipc.open_stream(io.BytesIO((tmp_path / "rows.arrow").read_bytes())).read_all().num_rows == 5


def test_two_forms_at_once_are_a_wrong_call(call: Service) -> None:
    answer = call("query", NONFINITE, "--csv", "--json")

    assert (answer.status, answer.stdout) == (_errors.USAGE, "")


@pytest.mark.parametrize(
    ("text", "options", "status"),
    [
        (NONFINITE, ["--fail-if", "any"], _errors.FAILED_IF),
        (NONFINITE, ["--fail-if", "none"], _errors.OK),
        (NONFINITE, ["--fail-if", "any", "--csv"], _errors.FAILED_IF),
        ("tensor.l2 > 1e9", ["--fail-if", "any"], _errors.OVER_GAP),
        ("tensor.l2 > 1e9", ["--fail-if", "none"], _errors.OVER_GAP),
        ("tensor.l2 > 1e9", ["--fail-if", "any", "--gaps", "lost"], _errors.OK),
        ("tensor.l2 > 1e9", ["--fail-if", "none", "--gaps", "lost"], _errors.FAILED_IF),
        ("tensor.l2 > 1e9", ["--fail-if", "any", "--gaps", "lost", "--csv"], _errors.OK),
        ("span.name == 'nothing'", ["--fail-if", "any", "--gaps", "lost", "--csv"], _errors.OVER_GAP),
    ],
)
def test_a_job_can_fail_by_what_a_query_finds_and_is_told_apart_from_an_empty_answer_over_a_gap(
    call: Service, text: str, options: list[str], status: int
) -> None:
    assert call("query", text, "--run", story.RUN, *options).status == status


@pytest.mark.parametrize(("text", "status"), [(NONFINITE, _errors.FAILED_IF), ("tensor.l2 > 1e9", _errors.OVER_GAP)])
def test_a_job_can_fail_by_what_is_found_in_any_run(call: Service, text: str, status: int) -> None:
    assert call("query", text, "--fail-if", "any").status == status


@pytest.mark.parametrize("form", [[], ["--csv"]])
def test_an_empty_answer_over_a_gap_says_so_also_where_no_job_is_to_fail(call: Service, form: list[str]) -> None:
    answer = call("query", "span.name == 'nothing'", "--run", story.RUN, *form)

    assert answer.status == _errors.OK
    assert "no rows, but " in answer.stderr


def test_a_service_that_tells_no_gaps_cannot_answer_a_job() -> None:
    with pytest.raises(UnreachableError, match="gaps-lost"):
        Told.of_body(Body(b"", {"total": "0", "gaps": "1"}))


def test_csv_has_the_same_header_on_every_page_and_where_there_is_no_row(call: Service) -> None:
    pages = [call("query", text, "--csv", "--limit", "1").stdout for text in (NONFINITE, "tensor.l2 > 1e9")]

    (header, row), only = (list(csv.reader(page.splitlines())) for page in pages)
    assert only == [header]
    assert {"rank", "time", "time_ns", "l2", "mean"} <= set(header)
    assert len(header) == len(row)


def test_csv_says_that_there_are_warnings(call: Service) -> None:
    answer = call("query", "attr.nothing == 'x'", "--csv")

    assert "1 warning" in answer.stderr


def test_an_error_of_a_query_shows_the_place(call: Service) -> None:
    answer = call("query", "tensor.nonfinit_count > 0")

    assert answer.status == _errors.USAGE
    assert answer.stderr.splitlines()[:3] == [
        answer.stderr.splitlines()[0],
        "  tensor.nonfinit_count > 0",
        "  " + "^" * len("tensor.nonfinit_count"),
    ]
    assert answer.stderr.count("tensor.nonfinit_count > 0") == 1


def test_sql_answers_as_a_table_with_bound_parameters(call: Service) -> None:
    text = "SELECT name, count() AS n FROM spans WHERE name = {name:String} AND rank = {rank:Int32} GROUP BY name"

    answer = call("sql", text, "-p", "name=step", "-p", "rank=2", "--run", story.RUN)

    assert answer.stdout.splitlines() == ["name  n", "step  30"]


def test_sql_answers_as_csv_json_and_arrow(call: Service, tmp_path: Path) -> None:
    text = "SELECT DISTINCT name FROM spans WHERE name LIKE 'r%' ORDER BY name"

    assert call("sql", text, "--csv").stdout.splitlines() == ["name", "rollout"]
    assert call("sql", text, "--json").json["items"] == [{"name": "rollout"}]
    assert call("sql", text, "--arrow", str(tmp_path / "a")).status == 0
    assert pa.ipc.open_stream((tmp_path / "a").read_bytes()).read_all().to_pylist() == [{"name": "rollout"}]


def test_sql_that_is_not_answered_shows_the_place(call: Service) -> None:
    answer = call("sql", "SELECT * FROM system.one", "--json")

    assert answer.status == _errors.USAGE
    assert answer.error["position"]["line"] == 1


def test_a_parameter_without_a_name_is_a_wrong_call(call: Service) -> None:
    assert call("sql", "SELECT 1", "-p", "17").status == _errors.USAGE


def test_explain_shows_text_rows_joins_sql_and_values(call: Service) -> None:
    answer = call("explain", "tensor.l2>3*prev(tensor.l2)")

    lines = answer.stdout.splitlines()
    assert lines[:2] == ["tensor.l2 > 3 * prev(tensor.l2)", "rows: tensor"]
    assert any(line.startswith("joined: history") for line in lines)
    assert any(line.lstrip().startswith("PREWHERE project = {project:String}") for line in lines)
    assert "project = 'default'" in lines


def test_explain_is_one_document_when_asked(call: Service) -> None:
    assert set(json.loads(call("explain", NONFINITE, "--json").stdout)) >= {
        "text",
        "entity",
        "joins",
        "sql",
        "parameters",
    }
