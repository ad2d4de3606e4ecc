"""JSON conventions and the envelope."""

import json

from rankscope_query_api.answers import Page, conventional, json_answer, moment


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
