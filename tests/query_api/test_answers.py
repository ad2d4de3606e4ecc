"""JSON conventions, the envelope, the cursor."""

import base64
import json

import pytest

from rankscope_query_api.answers import Page, conventional, cursor, json_answer, key_of, moment
from rankscope_query_api.errors import InvalidRequestError


def test_fields_ending_in_ns_are_strings_and_other_numbers_numbers() -> None:
    answer = conventional({"duration_ns": 2**62, "count": 2**53 + 1, "inner": [{"start_ns": -1, "rank": 3}]})

    assert answer == {"duration_ns": str(2**62), "count": 2**53 + 1, "inner": [{"start_ns": "-1", "rank": 3}]}


def test_numbers_that_json_has_not_are_words() -> None:
    answer = json_answer({"l2": float("nan"), "max": [float("inf"), float("-inf")], "mean": 0.5})

    assert json.loads(bytes(answer.body)) == {"l2": "NaN", "max": ["Infinity", "-Infinity"], "mean": 0.5}


def test_a_time_has_nine_decimals_beside_its_ns() -> None:
    assert moment("start", 1_795_971_713_000_000_007) == {
        "start": "2026-11-29T17:01:53.000000007Z",
        "start_ns": 1_795_971_713_000_000_007,
    }
    assert moment("end", None) == {"end": None, "end_ns": None}


def test_a_page_says_that_it_is_not_the_last() -> None:
    assert Page([{}], 5, next="abc").as_json() == {
        "items": [{}],
        "total": 5,
        "returned": 1,
        "truncated": True,
        "next": "abc",
        "warnings": (),
        "gaps": (),
    }


def test_a_cursor_brings_its_key_back() -> None:
    text = cursor((2**64 - 1, -1, "läuft"))

    assert key_of(text, (int, int, str)) == (2**64 - 1, -1, "läuft")
    assert key_of(None, (int,)) is None
    assert cursor(None) is None


@pytest.mark.parametrize(
    "text", ["", "%", "bm9wZQ", "WzFd", "W10", "eyJhIjoxfQ", "WzEsIjIiXQ", "WzFlNDAwXQ", "é", "W3RydWVd"]
)
def test_anything_else_is_no_cursor(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is no cursor of this list"):
        key_of(text, (int, int))


def test_a_key_that_no_column_can_hold_is_no_cursor() -> None:
    text = base64.urlsafe_b64encode(json.dumps([2**64]).encode()).decode()

    with pytest.raises(InvalidRequestError):
        key_of(text, (int,))
