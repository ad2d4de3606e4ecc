"""Conditions on texts, lists and truths: patterns of whole texts, parts, and attributes by key and value."""

import re
from collections.abc import Callable, Iterator

import pytest
from sqlglot import exp

from rankscope.tql import typed
from rankscope.tql.fields import Entity, Type
from rankscope_query_api.tql_sql.expressions import call, column
from rankscope_query_api.tql_sql.predicates import condition
from rankscope_query_api.tql_sql.scope import Scope, Source
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import START, Row, Writer
from tests.query_api.tql.typed_rows import TypedRows, field, integer, text, written

SPAN = Entity.SPAN
NAME = field("span.name", SPAN)
NAMES = (
    "all_reduce",
    "all_reduce\n",
    "a\nb",
    "",
    "é",
    "λ/é.weight",
    "'; DROP TABLE spans --",
    "\\d",
    "ALL_REDUCE",
    "{x:String}",
)
ATTRIBUTES: tuple[dict[str, str], ...] = (
    {"device": "cuda:0"},
    {"device": ""},
    {"devic": "e:cuda:0", "x": "1:y"},
    {"device:": "cuda:0"},
    {},
    {"": "device", "é": "ü", "4:devi": "ce"},
    {"de'v\\": "\n", "n": "text"},
)
NUMBERS: tuple[dict[str, float], ...] = ({"n": 1.0}, {"device": 3.0}, {})


def _rows() -> list[Row]:
    """A span for each name with each attributes and numbers, in turn."""
    count = len(NAMES) * len(ATTRIBUTES)
    return [
        {
            "span_id": number + 1, "trace_lo": 1, "kind": 1, "start": START + number, "path": "x", "step": number,
            "name": NAMES[number % len(NAMES)],
            "error_type": ("", "ValueError", "a")[number % 3],
            "attributes": ATTRIBUTES[number % len(ATTRIBUTES)],
            "numbers": NUMBERS[number % len(NUMBERS)],
        }
        for number in range(count)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def rows(front_process: FrontProcess) -> Iterator[TypedRows]:
    """The spans, beside another project's."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(
        store.client, Writer("study", 0).seal(spans=_rows()), Writer("study", 0, project="other").seal(spans=_rows())
    )
    yield TypedRows(store.client)
    store.drop()


def kept(rows: TypedRows, node: typed.Condition) -> list[int]:
    """Which rows fulfil a condition."""
    return rows.column(SPAN, field("step", SPAN), where=node)


def those(holds: Callable[[Row], object]) -> list[int]:
    """Which rows should."""
    return [number for number, row in enumerate(_rows()) if holds(row)]


@pytest.mark.parametrize(
    "pattern", ["all_.*", "all", "a.b", ".", "[^a]*", "", ".*", "(all_reduce|é)", "[a-z_]+", "\\\\d", "λ/.*|'.*", "é"]
)
@pytest.mark.parametrize("is_opposite", [False, True])
def test_a_pattern_is_of_the_whole_text(rows: TypedRows, pattern: str, is_opposite: bool) -> None:
    known = re.compile(pattern, re.ASCII | re.DOTALL)

    found = kept(rows, typed.Matches(NAME, pattern, is_opposite))

    # An empty name counts as missing: neither matches it, nor does not.
    assert found == those(lambda row: row["name"] and (known.fullmatch(row["name"]) is None) == is_opposite)


@pytest.mark.parametrize("part", ["reduce", "", "\n", "é", "LL", "'", "{x", "\\"])
def test_a_text_contains_a_part(rows: TypedRows, part: str) -> None:
    assert kept(rows, typed.Contains(NAME, text(part))) == those(lambda row: row["name"] and part in row["name"])


def test_a_text_contains_another_field(rows: TypedRows) -> None:
    node = typed.Contains(NAME, field("span.error_type", SPAN))

    assert kept(rows, node) == those(lambda row: row["name"] and row["error_type"] and row["error_type"] in row["name"])


KEYS = ("device", "devic", "device:", "", "é", "de'v\\", "n", "nowhere", "4:devi")
VALUES = ("cuda:0", "", "ü", "e:cuda:0", "\n", "text", "device", "ce", "3", "cuda")


@pytest.mark.parametrize("key", KEYS)
def test_an_attribute_is_found_by_exactly_its_key_and_text(rows: TypedRows, key: str) -> None:
    value = typed.Key("attr", key, Type.STRING)

    for wanted in VALUES:
        equal = kept(rows, typed.Compare("==", value, text(wanted)))
        unequal = kept(rows, typed.Compare("!=", value, text(wanted)))
        neither = kept(rows, typed.Opposite(typed.Compare("==", text(wanted), value)))
        assert equal == those(lambda row: row["attributes"].get(key) == wanted)  # noqa: B023 - called at once
        assert unequal == those(lambda row: row["attributes"].get(key, wanted) != wanted)  # noqa: B023
        assert neither == those(lambda row: row["attributes"].get(key) != wanted)  # noqa: B023
    some = kept(rows, typed.OneOf(value, tuple(text(one) for one in VALUES[:4])))
    assert some == those(lambda row: row["attributes"].get(key) in VALUES[:4])


@pytest.mark.parametrize("run", [None, "study"])
def test_an_attribute_is_looked_up_in_its_index(rows: TypedRows, run: str | None) -> None:
    device = typed.Key("attr", "device", Type.STRING)
    equal, among = typed.Compare("==", device, text("nowhere")), typed.OneOf(device, (text("a"), text("nowhere")))

    for node in (equal, among):
        statement, scope = rows.statement(SPAN, [NAME], where=node, run=run)
        plan = rows.client.query(f"EXPLAIN indexes = 1 {statement}", parameters=scope.parameters.values).result_rows
        assert "attribute_words" in "".join(line[0] for line in plan)
        assert "Granules: 0/1" in "".join(line[0] for line in plan)


@pytest.mark.parametrize("key", KEYS)
def test_an_attribute_of_either_kind_is_there_and_its_text_shown(rows: TypedRows, key: str) -> None:
    value = typed.Key("attr", key, Type.ATTRIBUTE)

    shown = rows.column(SPAN, value)

    wanted = [row["attributes"].get(key, row["numbers"].get(key)) for row in _rows()]
    assert shown == [f"{one:g}" if isinstance(one, float) else one for one in wanted]
    assert kept(rows, typed.Exists(value)) == [number for number, one in enumerate(wanted) if one is not None]


def test_texts_compare_by_their_letters(rows: TypedRows) -> None:
    below, above = (kept(rows, typed.Compare(sign, NAME, text("all_reduce"))) for sign in ("<", ">"))
    at_most, at_least = (kept(rows, typed.Compare(sign, NAME, text("all_reduce"))) for sign in ("<=", ">="))

    assert below == those(lambda row: row["name"] and row["name"] < "all_reduce")
    assert above == those(lambda row: row["name"] and row["name"] > "all_reduce")
    assert at_most == those(lambda row: row["name"] and row["name"] <= "all_reduce")
    assert at_least == those(lambda row: row["name"] and row["name"] >= "all_reduce")


def test_an_interval_of_texts_leaves_out_what_is_missing(rows: TypedRows) -> None:
    node = typed.Between(NAME, text(""), text("b"))

    assert kept(rows, node) == those(lambda row: row["name"] and row["name"] <= "b")


def _outputs(rows: TypedRows, node: typed.Condition) -> list[bool]:
    """A condition of three rows: a true and a false one, and one where nothing is."""
    flag = Source(column("flag"), call("isNotNull", column("flag")), True, None, False, "UInt8")
    ranks = Source(column("ranks"), None, False, None, False, "Array(Int32)")
    scope = Scope(SPAN, "default", None).behind({"agree": flag, "missing_ranks": ranks})
    made = "SELECT arrayJoin([(1, toNullable(toUInt8(1)), [3]), (2, 0, [3, 5]), (3, NULL, [])]) AS row"
    inner = f"SELECT row.1 AS n, row.2 AS flag, row.3 AS ranks FROM ({made})"
    asked = exp.select(exp.alias_(condition(node, scope), "c0")).from_(exp.to_table("made")).order_by("n")
    statement = written(asked).replace("FROM made", f"FROM ({inner})")
    found = rows.client.query(statement, parameters=scope.parameters.values).result_rows
    return [bool(row[0]) for row in found]


def test_a_truth_is_true_where_it_is_there(rows: TypedRows) -> None:
    agree = typed.Output("agree", Type.BOOL)

    assert _outputs(rows, typed.Truth(agree)) == [True, False, False]
    assert _outputs(rows, typed.Opposite(typed.Truth(agree))) == [False, True, True]
    assert _outputs(rows, typed.Exists(agree)) == [True, True, False]


def test_a_list_is_asked_for_its_length_or_for_an_item(rows: TypedRows) -> None:
    length, ranks = (typed.Output("missing_ranks", kind) for kind in (Type.INTEGER, Type.LIST))

    assert _outputs(rows, typed.Compare(">", length, integer(0))) == [True, True, False]
    assert _outputs(rows, typed.Compare("==", length, integer(2))) == [False, True, False]
    assert _outputs(rows, typed.Contains(ranks, integer(5))) == [False, True, False]
    assert _outputs(rows, typed.Exists(ranks)) == [True, True, False]
