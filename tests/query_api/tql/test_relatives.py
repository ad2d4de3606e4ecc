"""Spans by their relatives, against the plainest Python over awkward forests; and what a chain of relatives costs."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from rankscope import tql
from rankscope_query_api.tql_sql import compile_query
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import START, Row, Writer
from tests.query_api.tql.conftest import Asked

NAMES = "abcd"
OPERATORS = (">", ">>", "<", "<<", "~", "!>", "!>>")
MOST = 128

Key = tuple[str, int, int]
"""Run, trace and id of a span."""


def _spans(run: str) -> list[Row]:
    """Trees, orphans and copies; in one run a cycle of two, too, and a span that is its own parent."""
    draw = random.Random(run)
    found: list[Row] = []
    for trace in range(1, 4):
        ids = list(range(1, 13))
        for at, number in enumerate(ids):
            parent = draw.choice([0, *ids[:at], *ids[:at], 77]) if at else 0
            found.append(_span(trace, number, parent, name=draw.choice(NAMES)))
        found += [{**one, "status": 4} for one in draw.sample(found, 2)]
    circles = [(1, 2), (2, 1), (3, 3), (4, 2)]
    if run == "one":
        found += [_span(5, number, parent, name=NAMES[number - 1]) for number, parent in circles]
    return found


def _span(trace: int, number: int, parent: int, *, name: str) -> Row:
    shared = {"trace_hi": 7, "trace_lo": trace, "kind": 1, "status": 1, "step": 5, "start": START + number}
    return {**shared, "span_id": number, "parent_span_id": parent, "name": name, "duration": 1}


class Forest:
    """The spans as Python knows them."""

    def __init__(self, rows: dict[str, list[Row]]) -> None:
        self.names: dict[Key, str] = {}
        self.parents: dict[Key, Key | None] = {}
        for run, spans in rows.items():
            for one in spans:
                key = (run, one["trace_lo"], one["span_id"])
                self.names[key] = one["name"]
                self.parents[key] = (run, one["trace_lo"], one["parent_span_id"]) if one["parent_span_id"] else None

    def named(self, name: str) -> set[Key]:
        """The spans of a name; of `*`, all."""
        return {key for key, own in self.names.items() if name in {own, "*"}}

    def above(self, key: Key) -> list[Key | None]:
        """What lies above a span, as far as is looked; None behind a root."""
        found: list[Key | None] = []
        at = self.parents[key]
        while len(found) < MOST and at in self.names:
            found.append(at)
            at = self.parents[at]
        return [*found, None] if at is None else found

    def relatives(self, left: set[Key], operator: str, right: set[Key]) -> set[Key]:
        """The right spans with, or without, such a relative on the left."""
        is_related: dict[str, Callable[[Key], bool]] = {
            ">": lambda key: self.parents[key] in left,
            ">>": lambda key: bool(left & {*self.above(key)}),
            "<": lambda key: key in {self.parents[other] for other in left},
            "<<": lambda key: key in {above for other in left for above in self.above(other)},
            "~": lambda key: self.parents[key] is not None and self._beside(key, left),
            "!>": lambda key: self.parents[key] in {None, *self.names} - left,
            "!>>": lambda key: None in self.above(key) and not left & {*self.above(key)},
        }
        return {key for key in right if is_related[operator](key)}

    def _beside(self, key: Key, left: set[Key]) -> bool:
        return any(other != key and self.parents[other] == self.parents[key] for other in left)

    def answer(self, operands: Sequence[str], operators: Sequence[str]) -> set[Key]:
        """What a chain asks for."""
        found = self.named(operands[0])
        for operator, name in zip(operators, operands[1:], strict=True):
            found = self.relatives(found, operator, self.named(name))
        return found


def _line() -> list[Row]:
    """Spans below one another, more than are looked up."""
    return [_span(6, at, at - 1, name=f"{NAMES[at % 4] if at < MOST + 12 else 'z'}") for at in range(1, MOST + 13)]


ROWS = {"one": _spans("one"), "two": _spans("two"), "deep": _line()}
FOREST = Forest(ROWS)


@pytest.fixture(scope="module")
def forest(front_process: FrontProcess) -> Iterator[Asked]:
    """The spans in a database of their own."""
    store = Store(front_process.url)
    migrate(store.client)
    writers = {run: Writer(run, 0) for run in ROWS}
    insert(store.client, *(writers[run].seal(spans=rows) for run, rows in ROWS.items()))
    insert(store.client, Writer("one", 0, project="other").seal(spans=ROWS["two"]))
    yield Asked(store.client)
    store.drop()


def text_of(operands: Sequence[str], operators: Sequence[str]) -> str:
    """A chain as a query."""
    conditions = ["exists(span.name)" if name == "*" else f'span.name == "{name}"' for name in operands]
    return conditions[0] + "".join(f" {op} {one}" for op, one in zip(operators, conditions[1:], strict=True))


def keys(items: list[dict[str, Any]]) -> set[Key]:
    """The spans of an answer."""
    return {(one["run_id"], int(one["trace_id"][16:], 16), int(one["span_id"], 16)) for one in items}


def of_run(spans: set[Key], run: str | None) -> set[Key]:
    """Those of a run; of None, all."""
    return {key for key in spans if run in {None, key[0]}}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("operands", ["ab", "aa", "**"])
def test_relatives_are_those_that_the_trees_have(forest: Asked, operator: str, operands: str) -> None:
    found = forest.page(text_of([*operands], [operator]), run="one").items

    assert keys(found) == of_run(FOREST.answer([*operands], [operator]), "one")


@pytest.mark.parametrize(("operator", "operands"), [("<<", "z*"), (">>", "*z"), ("!>>", "z*"), ("!>>", "az")])
def test_relatives_are_looked_for_as_many_levels_up_as_down(forest: Asked, operator: str, operands: str) -> None:
    found = forest.page(text_of([*operands], [operator]), run="deep").items

    assert keys(found) == of_run(FOREST.answer([*operands], [operator]), "deep")


@pytest.mark.parametrize("seed", range(10))
def test_a_chain_is_read_from_the_left(forest: Asked, seed: int) -> None:
    draw = random.Random(seed)
    count = draw.randint(2, 4)
    operands, operators = draw.choices("abcd**", k=count + 1), draw.choices(OPERATORS, k=count)
    run = draw.choice([None, "one", "two"])

    found = forest.page(text_of(operands, operators), run=run).items

    assert keys(found) == of_run(FOREST.answer(operands, operators), run)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_longest_chain_costs_as_much_more_as_it_is_longer(forest: Asked, operator: str) -> None:
    def sql(count: int) -> str:
        checked = tql.check(tql.parse(text_of(["*"] * (count + 1), [operator] * count)))
        return compile_query(checked, project="default").sql

    sizes = [len(sql(count)) for count in range(1, 9)]
    steps = [after - before for before, after in pairwise(sizes)]
    found = forest.page(text_of(["*"] * 9, [operator] * 8), run="two").items

    assert max(steps) - min(steps) <= 16
    assert keys(found) == of_run(FOREST.answer(["*"] * 9, [operator] * 8), "two")
