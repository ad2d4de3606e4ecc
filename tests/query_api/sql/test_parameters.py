"""Values come back as they were sent, at the edges of their types, and never as anything but values."""

from typing import Any

import httpx
import pytest

from rankscope_query_api.errors import InvalidQueryError, InvalidRequestError
from rankscope_query_api.sql.compile import compile_statement
from rankscope_query_api.sql.parameters import MAX_BYTES, bound_values
from tests.query_api.sql.generator import ATTACKS
from tests.query_api.sql.sending import refused, row
from tests.query_api.tql.corpus import EVERY

EDGES: list[tuple[str, Any]] = [
    *((f"Int{bits}", edge) for bits in (8, 16, 32, 64) for edge in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)),
    *((f"UInt{bits}", edge) for bits in (8, 16, 32, 64) for edge in (0, 2**bits - 1)),
    *(("Float64", edge) for edge in (0.1, -1.7976931348623157e308, 5e-324, "NaN", "Infinity", "-Infinity", 2**53)),
    *(("Float32", edge) for edge in (-0.5, 3.4028234663852886e38, "Infinity")),
    *(("Bool", edge) for edge in (True, False)),
    *(("Nullable(Int8)", edge) for edge in (None, -128)),
    *(("Array(Int64)", edge) for edge in ([], [-(2**63), 2**63 - 1])),
    *(("Array(String)", edge) for edge in ([], ["", "a'b", "c\\d", "e\nf", "g\th", "]", "é😀"])),
    *(("Array(Float64)", edge) for edge in ([1.5, "NaN"], [])),
    *(("Nullable(String)", edge) for edge in (None, "", "NULL", "\\N")),
]

TEXTS = [
    *(
        "",
        " ",
        "'",
        "''",
        '"',
        "`",
        "\\",
        "\\'",
        "\\\\",
        "\\N",
        "\t",
        "\n",
        "\r\n",
        "\x00",
        "\x01",
        "{x:String}",
        "%s",
        "%(x)s",
    ),
    *(
        "é",
        "e\u0301",
        "😀",
        "\u202e",
        "\ufeff",
        "\uffff",
        "\U0010ffff",
        "İ",
        "ß",
        "＇",
        "' OR 1 = 1 --",
        "; DROP TABLE spans",
    ),
    *(attack.replace("{{", "{").replace("}}", "}") for attack in ATTACKS),
]


@pytest.mark.parametrize(("kind", "value"), EDGES)
async def test_a_value_at_the_edge_of_its_type_comes_back_as_it_was(
    client: httpx.AsyncClient, kind: str, value: Any
) -> None:
    assert (await row(client, f"SELECT {{v:{kind}}} AS v", parameters={"v": value}))["v"] == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((f"Int{bits}", edge) for bits in (8, 16, 32, 64) for edge in (-(2 ** (bits - 1)) - 1, 2 ** (bits - 1))),
        *((f"UInt{bits}", edge) for bits in (8, 16, 32, 64) for edge in (-1, 2**bits)),
        *(("Float32", 1e300), ("Float32", -3.5e38)),
        *(("Int64", 10**30), ("Int64", 1.5), ("Int64", "1"), ("Int64", True), ("Int64", None), ("Int64", [1])),
        *(("String", 1), ("String", None), ("String", ["a"]), ("String", "\ud800"), ("Bool", 1), ("Bool", "true")),
        *(("Float64", "1.5"), ("Float64", 10**400), ("Array(Int8)", 1), ("Array(Int8)", [128]), ("Array(Int8)", "12")),
        ("Array(Int8)", [None]),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"^v is "):
        bound_values({"v": kind}, {"v": value})


async def test_texts_come_back_as_they_were_whatever_is_in_them(api: httpx.AsyncClient) -> None:
    found = await row(
        api, "SELECT {texts:Array(String)} AS texts, {one:String} AS one", parameters={"texts": TEXTS, "one": "\\'"}
    )

    assert found == {"texts": TEXTS, "one": "\\'"}


async def test_every_query_of_the_corpus_comes_back_as_the_value_that_it_was(client: httpx.AsyncClient) -> None:
    short = [text for text in EVERY if len(text) < 1_000]

    assert (await row(client, "SELECT {texts:Array(String)} AS texts", parameters={"texts": short}))["texts"] == short


@pytest.mark.parametrize("text", [text for text in TEXTS if "\x00" not in text and "\x01" not in text])
async def test_texts_of_the_statement_itself_come_back_too(client: httpx.AsyncClient, text: str) -> None:
    written = text.replace("\\", "\\\\").replace("'", "\\'")

    assert await row(client, f"SELECT '{written}' AS t, length('{written}') AS n") == {
        "t": text,
        "n": len(text.encode()),
    }


async def test_a_parameter_without_a_value_a_value_without_one_and_too_much_are_refused(
    client: httpx.AsyncClient,
) -> None:
    missing = await refused(client, "SELECT {a:Int8} AS a", status=422)
    unused = await refused(client, "SELECT 1 AS a", status=422, parameters={"b": 1})
    long = await refused(client, "SELECT {a:String} AS a", status=422, parameters={"a": "x" * (MAX_BYTES + 1)})
    twice = await refused(client, "SELECT {a:Int8} AS a, {a:Int16} AS b", parameters={"a": 1})

    assert "'a' has no value" in missing["message"]
    assert "'b'" in unused["message"]
    assert str(MAX_BYTES) in long["message"]
    assert twice["message"] == "a is Int8 and Int16"


@pytest.mark.parametrize("name", ["project", "run", "s0", "u_a", "rs_t", "limit"])
async def test_no_parameter_of_a_user_is_one_of_the_services_own(client: httpx.AsyncClient, name: str) -> None:
    query = f"SELECT count() AS n, any({{{name}:String}}) AS v, 'text' AS t FROM metrics WHERE name = 'secret'"

    assert await row(client, query, parameters={name: "other"}) in (
        {"n": 0, "v": "", "t": "text"},
        {"n": 0, "v": "other", "t": "text"},
    )


async def test_as_many_values_as_may_be_sent_are_taken(api: httpx.AsyncClient) -> None:
    sent = ["é" * 100] * (MAX_BYTES // 210)

    assert await row(api, "SELECT length({a:Array(String)}) AS n", parameters={"a": sent}) == {"n": len(sent)}


@pytest.mark.parametrize("where", ["LIMIT {n:Int64}", "LIMIT 1 OFFSET {n:Int64}", "LIMIT {n:Int64} BY rank"])
@pytest.mark.parametrize("inside", [False, True])
def test_no_parameter_counts_rows_from_the_end(where: str, inside: bool) -> None:
    query = f"SELECT rank FROM spans {where}"

    with pytest.raises(InvalidQueryError, match="n is -9"):
        compile_statement(f"SELECT count() FROM ({query})" if inside else query, project="default", given={"n": -9})
