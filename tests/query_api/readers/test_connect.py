"""`rankscope.connect`: runs, TQL, SQL and trees from Python, over the service and its store."""

import math
import sys
import traceback
from pathlib import Path

import pytest

import rankscope
from rankscope.client import Client, MissingPackageError, NoServerError, NoTraceError, QueryRefusedError, Result
from rankscope.errors import ConfigError
from rankscope.up import BadUrlError, UnreachableError
from tests.ground.stores import Store
from tests.query_api import story
from tests.query_api.asking import ROLLOUT

DAMAGED = "tensor.name == 'layers.2.mlp.weight' and tensor.role == 'grad' and step == 14"


@pytest.fixture
def client(served: str) -> Client:
    return rankscope.connect(served)


def test_runs_are_rows_the_latest_first(client: Client) -> None:
    runs = client.runs()

    assert [run["run_id"] for run in runs] == [story.RUN, story.OTHER_RUN]
    assert (runs.total, runs.returned, runs.truncated) == (2, 2, False)


def test_a_result_goes_over_all_pages_and_reads_them_when_they_are_come_to(client: Client) -> None:
    result = client.query("span.name == 'step'", run=story.RUN, page=50)
    assert (result.returned, result.total, result.truncated) == (50, 123, True)

    rows = result.rows

    assert len(rows) == len({row["span_id"] for row in rows}) == 123
    assert (result.returned, result.truncated) == (123, False)
    assert list(result) == rows


def test_values_are_python_values_again(client: Client) -> None:
    rows = client.query(DAMAGED, run=story.RUN).rows

    by_rank = {row["rank"]: row for row in rows}
    assert math.isnan(by_rank[1]["l2"])
    assert by_rank[1]["absmax"] == math.inf
    assert isinstance(by_rank[0]["time_ns"], int)
    assert client.query("span.kind == 'rollout'").rows[0]["metrics"] == {"reward": -math.inf}


def test_a_text_that_looks_like_no_number_stays_a_text(client: Client) -> None:
    (row,) = client.sql("SELECT 'NaN' AS word, 0 / 0 AS number, ['Infinity'] AS words").rows

    assert row["word"] == "NaN"
    assert math.isnan(row["number"])
    assert row["words"] == ["Infinity"]


def test_gaps_and_warnings_stand_beside_the_rows(client: Client) -> None:
    result = client.query("span.name == 'nothing'", run=story.RUN)

    assert result.rows == []
    assert any(gap["cause"] == "ring_full" for gap in result.gaps)


def test_a_select_has_typed_columns_and_says_where_it_was_cut(client: Client) -> None:
    text = "SELECT rank, count() AS spans FROM spans WHERE name = {name:String} GROUP BY rank ORDER BY rank"

    result = client.sql(text, parameters={"name": "step"}, run=story.RUN, limit=2)

    assert result.columns == ("rank", "spans")
    assert [row["rank"] for row in result] == [0, 1]
    assert (result.total, result.truncated) == (None, True)
    assert result.warnings


@pytest.mark.parametrize(
    ("is_sql", "text", "mark"),
    [
        (False, "tensor.nonfinit_count > 0", "^" * len("tensor.nonfinit_count")),
        (True, "SELECT nme FROM spans", "^^^"),
    ],
)
def test_an_error_shows_the_place_and_what_to_write_instead(client: Client, is_sql: bool, text: str, mark: str) -> None:
    with pytest.raises(QueryRefusedError) as refused:
        client.sql(text) if is_sql else client.query(text)

    lines = str(refused.value).splitlines()
    assert any(line.strip() == mark for line in lines)
    assert lines[-1].startswith("hint: ")
    assert isinstance(refused.value, rankscope.errors.RankscopeError)


def test_a_trace_is_a_tree_also_where_only_its_id_is_known(client: Client) -> None:
    tree = client.trace(ROLLOUT)

    assert [(row["name"], row["depth"]) for row in tree] == [("rollout", 0), ("search", 1)]
    (root,) = tree.nested()
    assert [child["name"] for child in root["children"]] == ["search"]
    assert tree.info["spans"] == 2
    assert str(tree).splitlines()[1].split() == ["search", "30.000", "ms", "error"]


def test_a_step_is_a_tree_across_ranks_or_of_one(client: Client) -> None:
    across, of_one = client.step(story.RUN, 14), client.step(story.RUN, 14, rank=1)
    by_node = client.step(story.RUN, 14, by="node")

    assert across.info["ranks"]
    assert [[group["group"] for group in row["groups"]] for row in by_node][:1] == [["node-0", "node-1"]]
    assert [row["name"] for row in of_one] == ["step", "input", "forward", "layers.2", "backward", "optimizer"]


def test_what_is_around_a_span_is_a_tree_with_that_span_marked(client: Client) -> None:
    window = client.window(ROLLOUT, f"{2:016x}", around=1)

    assert [(row["name"], row["depth"], row["is_meant"]) for row in window] == [
        *(("rollout", 0, False), ("search", 1, True))
    ]
    assert (window.info["total"], window.info["is_whole_above"]) == (1, True)


def test_a_trace_that_is_nowhere_is_said_to_be(client: Client) -> None:
    with pytest.raises(NoTraceError, match="no run of this project"):
        client.trace("0" * 31 + "1")


def test_another_project_has_another_answer(served: str, told: Store) -> None:
    other = rankscope.connect(served, project="other")

    assert [row["name"] for row in other.query("exists(span.name)")] == ["secret"]
    assert told.url


def test_rows_become_an_arrow_table_with_a_column_for_each_name(client: Client) -> None:
    table = client.query(DAMAGED, run=story.RUN).to_arrow()

    assert table.num_rows == 4
    assert str(table.schema.field("time_ns").type) == "int64"
    assert str(table.schema.field("l2").type) == "double"
    spans = client.query("exists(attr.device)", page=7).to_arrow()
    assert spans.column("attributes")[0].as_py().startswith('{"device"')


def test_a_select_becomes_an_arrow_table_with_the_types_of_its_columns(client: Client) -> None:
    table = client.sql("SELECT start, rank, duration_ns FROM spans WHERE name = 'rollout'").to_arrow()

    assert str(table.schema.field("start").type) == "timestamp[ns, tz=UTC]"
    assert table.num_rows == 1


def test_a_data_frame_keeps_whole_numbers_whole(client: Client) -> None:
    frame = client.query("exists(span.name) | select span.start, step, rank", run=story.RUN).to_pandas()

    first = frame["start_ns"][0]
    assert first % 1000 == 0
    assert int(first) == min(int(value) for value in frame["start_ns"])
    assert list(frame.columns) == ["start", "start_ns", "step", "rank"]


@pytest.mark.parametrize(("method", "missing"), [("to_arrow", "pyarrow"), ("to_pandas", "pandas")])
def test_a_package_that_is_not_there_is_named_with_its_command(
    client: Client, method: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(MissingPackageError, match=f"pip install {missing}"):
        getattr(client.runs(), method)()


def test_a_notebook_shows_a_table_and_obeys_nothing_in_it() -> None:
    page = {
        "items": [{"name": "<script>alert(1)</script>", "rank": 0, "l2": None}],
        "total": 9,
        "next": None,
        "truncated": False,
        "warnings": ["a & b"],
        "gaps": [{"class": "lost", "cause": "ring_full"}],
    }

    shown = Result(lambda _after: page)._repr_html_()  # pyright: ignore[reportPrivateUsage] -- what a notebook calls

    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "1 of 9 rows" in shown
    assert "warning: a &amp; b" in shown
    assert "rows are absent inside what was asked for (ring_full): see gaps" in shown


def test_a_notebook_shows_a_tree_escaped(client: Client) -> None:
    shown = client.trace(ROLLOUT, run=story.RUN)._repr_html_()  # pyright: ignore[reportPrivateUsage] -- as above

    assert shown.startswith("<pre>rollout")


def test_a_tree_and_an_answer_that_was_cut_say_what_they_are(client: Client) -> None:
    cut = client.sql("SELECT name FROM spans", limit=2)

    assert repr(client.trace(ROLLOUT, run=story.RUN)).startswith(f"<Tree: run_id='{story.RUN}', trace_id='{ROLLOUT}'")
    assert repr(cut) == "<Result: 2 rows, and there are more; name>"


def test_a_traceback_shows_what_to_do(client: Client) -> None:
    with pytest.raises(UnreachableError) as unreachable:
        rankscope.connect("http://127.0.0.1:1").runs()
    with pytest.raises(QueryRefusedError) as refused:
        client.query("spn.x == 1")

    shown = ["".join(traceback.format_exception(error.value, chain=False)) for error in (unreachable, refused)]
    assert [text.count("\nhint: ") for text in shown] == [1, 1]


def test_explain_says_what_a_query_becomes(client: Client) -> None:
    assert client.explain("tensor.l2>1")["text"] == "tensor.l2 > 1"


def test_without_a_url_the_environment_says_where(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_URL", served)
    monkeypatch.setenv("RANKSCOPE_PROJECT", "other")

    assert [run["run_id"] for run in rankscope.connect().runs()] == ["secret-run", story.RUN]


def test_without_a_url_and_a_server_what_to_do_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RANKSCOPE_URL", raising=False)
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path))

    with pytest.raises(NoServerError, match="no server runs in") as error:
        rankscope.connect()

    assert "rankscope up" in error.value.hint


def test_a_url_or_key_that_cannot_be_one_is_refused_and_not_told() -> None:
    with pytest.raises(BadUrlError) as url:
        rankscope.connect("http://bob:s3cr3t@host:1")
    with pytest.raises(ConfigError) as key:
        rankscope.connect("http://host:1", api_key="s3cr3t with blanks")

    assert "s3cr3t" not in f"{url.value}{key.value}"
