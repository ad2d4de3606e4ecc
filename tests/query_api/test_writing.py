"""Answers become bytes: large ones one after the other, small ones meanwhile, values by the type of their column."""

import asyncio
import json
import math
import threading
from typing import Any

import pytest
from starlette.responses import Response

from rankscope_query_api.encodings import Format, Rows, as_csv, response
from rankscope_query_api.room import HELD, Holding, Room
from rankscope_query_api.settings import Settings
from rankscope_query_api.writing import LARGE_BYTES, Writing

NAN, INFINITY = math.nan, math.inf

COLUMNS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("count", "UInt64", [2**64 - 1, 0], [2**64 - 1, 0]),
    ("took_ns", "Int64", [-1, 2**62], ["-1", str(2**62)]),
    ("took_ns", "Nullable(Int64)", [None, 7], [None, "7"]),
    ("took_ns", "String", ["7", ""], ["7", ""]),
    ("each_ns", "Array(Int64)", [[7], []], [[7], []]),
    ("l2", "Float64", [0.5, NAN], [0.5, "NaN"]),
    ("l2", "Nullable(Float32)", [None, -INFINITY], [None, "-Infinity"]),
    ("l2", "Array(Float64)", [[0.5, 1.5], [INFINITY, 0.0]], [[0.5, 1.5], ["Infinity", 0.0]]),
    ("l2", "Array(Nullable(Float64))", [[None, NAN], [1.0]], [[None, "NaN"], [1.0]]),
    ("l2", "Array(Array(Float64))", [[[NAN]], []], [[["NaN"]], []]),
    ("names", "Array(LowCardinality(String))", [["a"], ["", "ü"]], [["a"], ["", "ü"]]),
    ("attributes", "Map(LowCardinality(String), String)", [{"a_ns": "1"}, {}], [{"a_ns": "1"}, {}]),
    ("metrics", "Map(String, Float64)", [{"a": NAN}, {"b": 1.0}], [{"a": "NaN"}, {"b": 1.0}]),
    ("times", "Map(String, Int64)", [{"a_ns": 1}, {"b": 1}], [{"a_ns": "1"}, {"b": 1}]),
    ("both", "Tuple(Int64, Float64)", [(1, NAN), (2, 0.5)], [[1, "NaN"], [2, 0.5]]),
    ("start", "DateTime64(3, 'UTC')", [0, 1], ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z"]),
    ("is_late", "Bool", [True, False], [True, False]),
]
"""Name, type and values of a column, and the values as JSON has them."""


@pytest.mark.parametrize(("name", "kind", "values", "said"), COLUMNS)
def test_a_column_is_written_by_its_type_as_the_conventions_ask(
    name: str, kind: str, values: list[Any], said: list[Any]
) -> None:
    answer = response({"items": ()}, Rows((name,), (kind,), [values]), form=Format.JSON)

    assert [row[name] for row in json.loads(bytes(answer.body))["items"]] == said


@pytest.mark.parametrize(
    ("kind", "values", "cells"),
    [
        ("Array(Float64)", [[0.5, NAN]], ['"[0.5,""NaN""]"']),
        ("Float64", [NAN, None, 1.0], ["NaN", "", "1.0"]),
        ("Int64", [7], ["7"]),
        ("", [(1, NAN), {"a": 2}], ['"[1,""NaN""]"', '"{""a"":2}"']),
    ],
)
def test_csv_has_the_same_words_for_what_json_has_no_number_for(kind: str, values: list[Any], cells: list[str]) -> None:
    assert as_csv(Rows(("took_ns",), (kind,), [values])).decode().split("\r\n")[1:-1] == cells


async def test_large_answers_are_written_one_after_the_other_and_a_small_one_waits_for_none() -> None:
    writing, room = Writing(), Room(Settings())
    begun, go_on = list[str](), threading.Event()

    def write(name: str) -> Response:
        begun.append(name)
        assert name == "small" or go_on.wait(60)
        return Response(name)

    async def written(name: str, size: int) -> bytes:
        held = Holding(room)
        held.written(size)
        HELD.set(held)
        return bytes((await writing.written(lambda: write(name))).body)

    large = [asyncio.create_task(written(name, LARGE_BYTES)) for name in ("one", "two", "three")]
    await asyncio.sleep(0)
    small = await asyncio.create_task(written("small", LARGE_BYTES - 1))
    large[1].cancel()  # nobody waits for it any more
    await asyncio.wait({large[1]})
    go_on.set()

    assert small == b"small"
    assert [await large[0], await large[2]] == [b"one", b"three"]
    assert begun.index("small") <= 1
    assert [name for name in begun if name != "small"] == ["one", "three"]
