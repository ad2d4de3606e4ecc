"""What people see: trees, bars, tables, durations, carets."""

import pytest

from rankscope.cli._columns import laid_out
from rankscope.cli._one_trace import span_lines
from rankscope.cli._output import duration, plural
from rankscope.cli._table import CELL_WIDTH, cell, table
from rankscope.cli._tree import bar, branches
from rankscope.client import caret, printable, width_of


def test_a_tree_is_drawn_from_depths() -> None:
    names = ["step", "input", "forward", "layer", "layer", "backward"]

    drawn = [lead + name for lead, name in zip(branches([0, 1, 1, 2, 2, 1]), names, strict=True)]

    assert drawn == [
        "step",
        "├─ input",
        "├─ forward",
        "│  ├─ layer",
        "│  └─ layer",
        "└─ backward",
    ]


def test_several_roots_stand_side_by_side() -> None:
    assert branches([0, 1, 0, 1]) == ["", "└─ ", "", "└─ "]


def test_a_deep_chain_needs_no_bars() -> None:
    assert branches([0, 1, 2, 3]) == ["", "└─ ", "   └─ ", "      └─ "]


@pytest.mark.parametrize(("share", "filled"), [(0.0, 0), (1.0, 24), (0.5, 12), (7.0, 24), (-1.0, 0)])
def test_a_bar_is_as_long_as_its_share(share: float, filled: int) -> None:
    assert bar(share).count("█") == filled
    assert len(bar(share)) == 24


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        ("5", "5 ns"),
        ("1500", "1.5 µs"),
        (12_345_678, "12.3 ms"),
        ("2e9", "2 s"),
        (None, "-"),
        (-2_000_000, "-2 ms"),
    ],
)
def test_a_duration_has_the_unit_that_reads_best(ns: object, text: str) -> None:
    assert duration(ns) == text


def test_a_table_is_aligned_and_long_cells_are_cut() -> None:
    lines = table([{"a": 1, "b": "x" * 100}, {"a": 22}], ["a", "b"])

    assert lines[0] == "a   b"
    assert lines[1].startswith("1   xxx")
    assert lines[1].endswith("…")
    assert lines[2] == "22  -"


@pytest.mark.parametrize(("value", "text"), [(0.1, "0.1"), ("NaN", "NaN"), ([1, 2], "[1, 2]"), (True, "True")])
def test_a_cell_shows_each_kind_of_value(value: object, text: str) -> None:
    assert cell(value) == text


def test_a_caret_stands_under_the_place() -> None:
    error = {"position": {"line": 2, "column": 3, "length": 4}, "expected": ["a number"]}

    assert caret("rank == 0\nxxyyyy", error) == ["  xxyyyy", "    ^^^^", "expected: a number"]


def test_a_line_ends_where_the_language_ends_it() -> None:
    text = "rank == 0\u2028 and\r\nxx == 1\r\n"
    error = {"position": {"line": 2, "column": 1, "length": 2}}

    assert caret(text, error) == ["  xx == 1", "  ^^"]


def test_a_caret_stands_under_its_place_behind_wide_letters_and_accents() -> None:
    text = 'span.name == "日本e\u0301" and spn.x == 1'
    error = {"position": {"line": 1, "column": text.index("spn") + 1, "length": 5}}

    assert caret(text, error)[1] == "  " + " " * (text.index("spn") + 2 - 1) + "^^^^^"


@pytest.mark.parametrize("terms", [(0, 60), (60, 60), (60, 0)])
def test_of_a_long_line_the_part_around_the_place_is_shown(terms: tuple[int, int]) -> None:
    before, after = ("rank == 1 or " * terms[0], " or rank == 1" * terms[1])
    error = {"position": {"line": 1, "column": len(before) + 1, "length": 3}}

    line, mark = caret(f"{before}rnk == 2{after}", error)

    assert line[mark.index("^") : len(mark)] == "rnk"
    assert len(line) < 81
    assert line.count("…") == sum(map(bool, terms))


def test_a_table_of_wide_letters_is_aligned() -> None:
    rows = [{"name": "日本", "rank": 1}, {"name": "e\u0301", "rank": 2}, {"name": "x" * 20, "rank": 3}]

    assert [width_of(line) for line in table(rows, ["name", "rank"])[1:]] == [23, 23, 23]
    assert width_of(cell("日" * 40)) == CELL_WIDTH - 1


def test_an_error_without_a_place_shows_none() -> None:
    assert caret("rank", {"position": None, "expected": None}) == []


TITLE = "\x1b]0;owned\x07"
"""Sets a terminal's title; others write into its clipboard."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TITLE, "\\u001b]0;owned\\u0007"),
        ("\x9b2Ja\nb\r\x7f", "\\u009b2Ja\\u000ab\\u000d\\u007f"),
        ("\u202eabc\u2069", "\\u202eabc\\u2069"),
        ("\ud800", "\\ud800"),
        ("größe 層 ±\u200d", "größe 層 ±\u200d"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_escaped_and_all_else_as_it_is(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_name_cannot_reach_the_terminal_nor_break_a_line() -> None:
    name = f"{TITLE}\nforged"

    lines = [
        *table([{name: name}, {name: [name]}], [name]),
        *span_lines([{"name": name, "depth": 0, "duration_ns": 1}]),
        *caret(f"x {TITLE} == 1", {"position": {"line": 1, "column": 3, "length": len(TITLE)}}),
    ]

    assert not [character for line in lines for character in line if not character.isprintable()]
    assert len(lines) == 6
    assert lines[-1].count("^") == len(printable(TITLE))


def test_one_is_singular() -> None:
    assert (plural(1, "rank"), plural(2, "rank")) == ("1 rank", "2 ranks")


TENSOR_ROW = {"run_id": "a", "step": 1, "rank": 0, "role": "grad", "name": "w", "module": "m", "layer_index": 3}
MANY = {f"stat{number}": number for number in range(20)}


def test_what_a_query_names_stands_first_in_its_table() -> None:
    query = 'tensor.role == "grad" and tensor.l2 > 100 and module.path contains "m" and layer.index == 3'

    _, columns = laid_out([TENSOR_ROW | MANY | {"l2": 120.0}], query)

    assert columns[:7] == ["role", "l2", "module", "layer_index", "step", "rank", "name"]
    assert len(columns) == 12


def test_a_key_of_a_map_that_a_query_names_is_a_column() -> None:
    row = {"name": "s", "duration_ns": "5000000", "attributes": {"batch size": 8}, "metrics": {"loss": 0.5}}

    (shown,), columns = laid_out([row], 'attr."batch size" > 4 and metric.loss > 0.1 and span.duration > 1ms')

    assert columns == ["attr.batch size", "metric.loss", "duration", "name"]
    assert (shown["attr.batch size"], shown["metric.loss"], shown["duration"]) == (8, 0.5, "5 ms")


def test_the_run_is_a_column_only_where_rows_are_of_several_or_the_query_names_it() -> None:
    other = TENSOR_ROW | {"run_id": "b"}

    _, of_one = laid_out([TENSOR_ROW], "tensor.l2 > 0")
    _, of_two = laid_out([TENSOR_ROW, other], "tensor.l2 > 0")
    _, named = laid_out([TENSOR_ROW], 'run.id == "a" and tensor.l2 > 0')

    assert "run_id" not in of_one
    assert of_two[0] == named[0] == "run_id"


def test_a_query_that_only_the_service_can_read_still_has_a_table() -> None:
    assert laid_out([TENSOR_ROW], "words of the future")[1] == ["step", "rank", "role", "name"]
