"""What becomes of a payload."""

import argparse
import dataclasses
import enum
import json
import math
import time
import tracemalloc
from array import array
from collections import ChainMap, OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from rankscope.privacy import REDACTED, Preview, Redactor
from tests.agent.privacy.planted import SHAPED, Maker

GITHUB = "gh" + "p_" + "a1B2" * 9


HUGE = 1 << 16_609
"""Of more digits than Python writes."""


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    password: str


@dataclasses.dataclass
class Request:
    prompt: str
    api_key: str
    hidden: str = dataclasses.field(default="not to be shown", repr=False)


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("mute")

    __str__ = __repr__


class Endless(Mapping[str, int]):
    """A mapping that looks its values up, and never ends."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __len__(self) -> int:
        return 1 << 40

    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield f"k{number}"


class Broken(UserDict[str, int]):
    def __iter__(self) -> Iterator[str]:
        raise OSError("the file is gone")


def shown(value: object, **given: Any) -> Any:
    return json.loads(Redactor(**given).preview(value).text)


WRITTEN: list[tuple[object, str]] = [
    ("accelerate", '"accelerate"'),
    ({"b": 1, "a": [True, None, 2.5]}, '{"a":[true,null,2.5],"b":1}'),
    ({"é": "日本", "n": "a\nb"}, '{"n":"a\\nb","é":"日本"}'),
    ((1, "x"), '[1,"x"]'),
    ({}, "{}"),
    ([], "[]"),
    ("", '""'),
    (None, "null"),
    ([math.nan, math.inf, -math.inf], '["NaN","Infinity","-Infinity"]'),
    ({"loss": math.nan, "step": 3}, '{"loss":"NaN","step":3}'),
    ({1: 2, None: 3}, '{"1":2,"None":3}'),
    (b"abc", '{"size":3,"type":"bytes"}'),
    (bytearray(7), '{"size":7,"type":"bytearray"}'),
    (memoryview(bytes(9)), '{"size":9,"type":"memoryview"}'),
    (Color.RED, '"Color.RED"'),
    ([Level.HIGH], '["Level.HIGH"]'),
    (deque([1, 2]), "[1,2]"),
    (frozenset([3]), "[3]"),
    (range(3), '"range(0, 3)"'),
    (array("d", [0.5] * 3), "[0.5,0.5,0.5]"),
    (torch.Size([3, 4]), "[3,4]"),
    (UserList([1, "a"]), '[1,"a"]'),
    ({"a": 1}.keys(), '["a"]'),
    (torch.nn.Linear(2, 2), '"<torch.nn.modules.linear.Linear>"'),
    (1 + 2j, '"(1+2j)"'),
    (OrderedDict(a=1), '{"a":1}'),
    (MappingProxyType({"a": 1}), '{"a":1}'),
    (ChainMap({"a": 1}, {"b": 2}), '{"a":1,"b":2}'),
    (SimpleNamespace(lr=0.1), '{"lr":0.1}'),
    (argparse.Namespace(lr=0.1, token="abc"), '{"lr":0.1,"token":"[REDACTED]"}'),
    (PurePosixPath("a/b"), '"a/b"'),
    (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02 00:00:00+00:00"'),
    (ValueError("bad"), '{"message":"bad","type":"ValueError"}'),
    (HUGE, '"<int of 16610 bits>"'),
    ({"n": HUGE, "m": 1}, '{"m":1,"n":"<int of 16610 bits>"}'),
    (Request("hi", "abc"), '{"api_key":"[REDACTED]","prompt":"hi"}'),
    (Point(1, "abc"), '{"password":"[REDACTED]","x":1}'),
    ("a\ud800b", '"a?b"'),
]


@pytest.mark.parametrize(("value", "text"), WRITTEN, ids=[text[:30] for _, text in WRITTEN])
def test_a_value_is_written_as_json_with_sorted_keys(value: object, text: str) -> None:
    assert Redactor().preview(value) == Preview(text, REDACTED in text, False)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "<object>"),
        (len, "<builtins.len>"),
        (Mute, "Mute>"),
        (Mute(), "Mute: RuntimeError when asked for its text>"),
        ({Mute(): 1}, "Mute: RuntimeError when asked for its text>"),
        ((number for number in "ab"), "<generator>"),
        (Broken(a=1), "<unreadable Broken: OSError>"),
    ],
)
def test_an_object_that_says_nothing_is_named(value: object, says: str) -> None:
    preview = Redactor().preview(value)

    assert says in preview.text
    assert "0x" not in preview.text


def test_an_iterator_is_not_consumed() -> None:
    numbers = iter([1, 2])

    Redactor().preview({"numbers": numbers})

    assert list(numbers) == [1, 2]


def test_tensors_and_arrays_are_described_with_a_few_values() -> None:
    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 10
    array = np.arange(100, dtype=np.int16).reshape(2, 50)

    assert Redactor().preview(tensor).text == (
        '{"device":"cpu","dtype":"float32","shape":[3,4],"type":"torch.Tensor","values":[0.0,0.1,0.2,0.3]}'
    )
    described = shown(array)
    described.pop("device", None)  # numpy 1 has none
    assert described == {"dtype": "int16", "shape": [2, 50], "type": "numpy.ndarray", "values": list(range(8))}


@pytest.mark.parametrize(
    ("value", "values"),
    [
        (torch.tensor(1.5, requires_grad=True), [1.5]),
        (torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)), [1.0, 1.0]),
        (torch.zeros(3, 0), []),
        (torch.zeros(0, 3), []),
        (torch.tensor([math.nan, math.inf]), ["NaN", "Infinity"]),
        (np.array(7), [7]),
        (np.array([True]), [True]),
    ],
)
def test_values_of_unusual_tensors_are_shown(value: object, values: list[object]) -> None:
    assert shown(value)["values"] == values


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(4, device="meta"),
        torch.zeros(4, 4).to_sparse(),
        torch.zeros(2, dtype=torch.complex64),
        np.array([GITHUB, object()], dtype=object),
        np.zeros(2, dtype="datetime64[s]"),
        np.ma.masked_array([1, 2], mask=[True, False]),
    ],
    ids=["meta", "sparse", "complex", "objects", "times", "masked"],
)
def test_values_that_are_not_at_hand_are_not_shown(value: object) -> None:
    described = shown(value)

    assert "values" not in described
    assert described["shape"]


def test_a_number_of_numpy_is_a_number() -> None:
    assert shown([np.float32(0.5), np.int64(3), np.float64(0.25), np.bool_(True)]) == [0.5, 3, 0.25, True]


def test_a_large_tensor_or_list_costs_no_memory() -> None:
    values: list[object] = [torch.zeros(1000, 1000), np.zeros((1000, 1000)), list(range(1_000_000)), "x" * 1_000_000]
    redactor = Redactor()
    tracemalloc.start()
    try:
        for value in values:
            redactor.preview(value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100_000


def spent(redactor: Redactor, value: object) -> float:
    """Processor time of one preview: others may be busy."""
    seconds: list[float] = []
    for _ in range(5):
        started = time.thread_time()
        redactor.preview(value)
        seconds.append(time.thread_time() - started)
    return min(seconds)


def of_texts(size: int) -> dict[str, str]:
    return {f"key {number}": "text" for number in range(size)}


LARGE: dict[str, Callable[[int], object]] = {
    "dict": of_texts,
    "dict of numbers": lambda size: {f"n{number}": number for number in range(size)},
    "dict of dicts": lambda size: {"inner": {"innermost": of_texts(size)}},
    "list of dicts": lambda size: [of_texts(size)] * 3,
    "ordered dict": lambda size: OrderedDict(of_texts(size)),
    "proxy": lambda size: MappingProxyType(of_texts(size)),
    "user's mapping": lambda size: UserDict(of_texts(size)),
    "keys": lambda size: of_texts(size).keys(),
    "items": lambda size: of_texts(size).items(),
    "values": lambda size: of_texts(size).values(),
    "set": lambda size: set(of_texts(size)),
    "deque": lambda size: deque(of_texts(size)),
    "fields": lambda size: SimpleNamespace(**of_texts(size)),
}


@pytest.mark.parametrize("kind", LARGE)
def test_the_time_ends_where_the_room_does(kind: str) -> None:
    redactor = Redactor()
    filled, huge = LARGE[kind](2_000), LARGE[kind](200_000)

    seconds = [spent(redactor, filled), spent(redactor, huge)]

    assert seconds[1] < 10 * seconds[0] + 0.002  # a hundred times the entries


def test_a_mapping_of_a_million_entries_costs_as_much_as_one_that_fills_the_room() -> None:
    redactor, full = Redactor(), of_texts(300)

    assert spent(redactor, of_texts(1_000_000)) < 10 * spent(redactor, full) + 0.002


def test_a_long_list_of_numbers_is_shown_by_its_head() -> None:
    assert shown(list(range(1_000_000))) == [*range(8), "… 999992 more"]
    assert shown(list(range(128))) == list(range(128))


def test_what_does_not_fit_is_left_out_and_the_rest_is_json() -> None:
    value = {f"key{number}": {"text": "word " * 20, "list": [number] * 9} for number in range(200)}

    preview = Redactor().preview(value)

    assert preview.is_truncated
    assert 2_500 < len(preview.text.encode()) <= 4_096
    assert json.loads(preview.text)["…"].endswith("more")


@pytest.mark.parametrize("letter", ["x", "é", "日", "🔥", "\n", '"', "\\"])
@pytest.mark.parametrize("most", [64, 100, 4_096])
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_long_text_is_cut_at_a_character_and_stays_json(letter: str, most: int, *, is_nested: bool) -> None:
    text = letter * 5_000
    preview = Redactor().preview({"a": text, "b": [text, text]} if is_nested else text, max_bytes=most)

    assert preview.is_truncated
    assert most // 3 <= len(preview.text.encode()) <= most
    json.loads(preview.text)


def test_characters_that_json_escapes_are_within_the_bound_too() -> None:
    preview = Redactor().preview("\0" * 5_000, max_bytes=100)

    assert len(preview.text) <= 100


def test_a_text_that_fits_exactly_is_whole() -> None:
    assert Redactor().preview("x" * 4_094) == Preview('"' + "x" * 4_094 + '"', False, False)
    assert Redactor().preview("x" * 4_095).is_truncated


@pytest.mark.parametrize("kind", SHAPED)
def test_no_part_of_a_secret_is_left_at_the_edge(kind: str) -> None:
    secret = SHAPED[kind](Maker())
    redactor = Redactor()
    for start in range(40, 100, 3):
        for preview in (redactor.preview("-" * start + " " + secret, max_bytes=100),
                        redactor.excerpt("-" * start + " " + secret, max_bytes=100)):  # fmt: skip
            assert secret[:6] not in preview.text, (start, preview)
            assert preview.is_redacted
            assert len(preview.text) <= 100


def test_a_deep_value_ends_in_a_mark() -> None:
    value: list[object] = []
    for _ in range(10_000):
        value = [value]

    preview = Redactor().preview(value)

    assert preview == Preview("[" * 16 + '"…"' + "]" * 16, False, True)


def test_a_cycle_is_named() -> None:
    value: dict[str, object] = {"a": 1}
    value["self"] = [value]

    assert shown(value) == {"a": 1, "self": ["<cycle: the dict around it>"]}


def test_the_same_value_twice_is_no_cycle() -> None:
    part = {"a": 1}

    assert shown([part, part]) == [part, part]


def test_of_a_foreign_sequence_the_head_alone_is_asked_for() -> None:
    asked: list[int] = []

    class Rows(Sequence[str]):
        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, index: Any) -> Any:
            asked.append(index)
            return f"row {index}"

    assert shown(Rows())[-1] == "… 999992 more"
    assert len(asked) <= 16


def test_a_mapping_without_end_is_cut() -> None:
    preview = Redactor().preview(Endless())

    assert preview.is_truncated
    assert len(preview.text) <= 4_096


def test_secrets_are_replaced_by_key_at_any_depth_and_numbers_stay() -> None:
    assert shown(
        {
            "headers": [["Authorization", "Bearer abc"], ("x-api-key", b"abc"), {"name": "cookie", "value": "a=b"}],
            "credentials": {"user": "me", "port": 5432, "on": True, "none": None, "keys": ["a", 2]},
            "loss_per_token": 0.25,
            "token": 7,
            "time/token": math.nan,
            "pad_token": "<pad>",
        }
    ) == {
        "headers": [["Authorization", REDACTED], ["x-api-key", REDACTED], {"name": "cookie", "value": REDACTED}],
        "credentials": {"user": REDACTED, "port": 5432, "on": True, "none": None, "keys": [REDACTED, 2]},
        "loss_per_token": 0.25,
        "token": 7,
        "time/token": "NaN",
        "pad_token": "<pad>",
    }


def test_a_secret_in_a_key_is_replaced() -> None:
    preview = Redactor().preview({GITHUB: 1, "x" * 200 + f"/{GITHUB}/" + "y" * 200: 2})

    assert GITHUB not in preview.text
    assert preview.is_redacted


def test_keys_that_read_alike_are_told_apart() -> None:
    assert shown({1: "a", "1": "b"}) == {"1": "a", "1 (1)": "b"}


@pytest.mark.parametrize("is_redacted", [False, True])
def test_a_preview_says_whether_something_was_replaced(is_redacted: bool) -> None:  # a parameter
    value = {"a": "plain", "b": [{"c": GITHUB if is_redacted else "text"}]}

    assert Redactor().preview(value).is_redacted is is_redacted


def test_a_replaced_secret_that_was_left_out_does_not_count_as_shown() -> None:
    preview = Redactor().preview({"a": "x" * 5_000, "b": GITHUB})

    assert GITHUB[:8] not in preview.text


def test_an_excerpt_is_the_text_itself() -> None:
    redactor = Redactor()

    assert redactor.excerpt('bad "value"\n') == Preview('bad "value"\n', False, False)
    assert redactor.excerpt(f"no {GITHUB}") == Preview("no [REDACTED]", True, False)
    assert redactor.excerpt("é" * 100, max_bytes=9) == Preview("é" * 4, False, True)


def test_preview_bytes_is_the_bound_unless_the_call_says_otherwise() -> None:
    redactor = Redactor(preview_bytes=64)

    assert len(redactor.preview("x" * 999).text.encode()) <= 64
    assert len(redactor.preview("x" * 999, max_bytes=300).text.encode()) > 200
