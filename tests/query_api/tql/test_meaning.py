"""Random predicates over awkward rows give the rows that the language says, in its order, on any page size."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from rankscope import tql
from rankscope.tql.fields import Entity
from rankscope.tql.typed import Rows
from tests.query_api.tql.conftest import Asked
from tests.query_api.tql.events import Process
from tests.query_api.tql.oracle import holds, placed
from tests.query_api.tql.predicates import SPAN_KINDS, TENSOR_KINDS, texts
from tests.query_api.tql.rows import spans, tensors

RANKS = (0, 1, -1)
PATIENT = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


PROCESSES = [Process(rank, [{Entity.TENSOR: tensors(rank), Entity.SPAN: spans(rank)}]) for rank in RANKS]


def expected(text: str, entity: Entity) -> list[tuple[Any, ...]]:
    """The keys of the rows of which the query's condition is true, in order."""
    source = tql.check(tql.parse(text)).source
    assert isinstance(source, Rows)
    return [known.order for known in placed(PROCESSES, entity) if holds(source.condition, known)]


def keys(answer_rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The sort keys behind an answer's columns."""
    return [row[-8:] for row in answer_rows]


@given(texts(TENSOR_KINDS))
@PATIENT
def test_a_predicate_on_tensors_means_what_the_language_says(ask: Asked, text: str) -> None:
    query = f"{text} and (exists(tensor.dtype) or not exists(tensor.dtype))"

    answer = ask.page(query)

    wanted = expected(query, Entity.TENSOR)
    assert keys(answer.rows) == wanted
    assert answer.total == len(wanted)


@given(texts(SPAN_KINDS))
@PATIENT
def test_a_predicate_on_spans_means_what_the_language_says(ask: Asked, text: str) -> None:
    query = f"{text} and (exists(span.name) or missing(span.name))"

    answer = ask.page(query)

    assert keys(answer.rows) == expected(query, Entity.SPAN)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("rank == 1 and step == 5 and exists(tensor.dtype)", 1),
        ("exists(tensor.dtype)", 17),
        ("exists(tensor.dtype) | order by tensor.absmax desc", 13),
        ("exists(tensor.dtype) | order by tensor.mean, tensor.nan_count desc, layer.type", 19),
        ("exists(tensor.dtype) | order by step desc, rank | limit 40", 7),
        ("exists(tensor.dtype) | top 30 by tensor.l2", 11),
        ("tensor.nan_count < 5 | count() by rank, layer.type, phase", 5),
        ("exists(tensor.dtype) | count() by tensor.absmax, tensor.fingerprint | order by count desc", 9),
        ("exists(span.span_id) | count() by attr.x, metric.reward, step", 9),
        ("exists(span.span_id) | count() by span.trace_id, launch, span.parent_id, span.duration", 23),
        ("exists(span.span_id) | order by metric.reward desc, span.duration, span.trace_id desc", 22),
        ("exists(span.span_id) | count()", 1),
    ],
)
def test_pages_of_any_size_put_together_are_the_whole_answer(ask: Asked, text: str, size: int) -> None:
    whole = ask.page(text)

    assert len(whole.rows) == whole.total > 0
    assert [repr(row) for row in ask.pages(text, limit=size)] == [repr(row) for row in whole.rows]


@pytest.mark.parametrize("direction", ["", " desc"])
def test_nan_and_missing_values_come_last_in_either_direction(ask: Asked, direction: str) -> None:
    items = ask.page(f"exists(tensor.dtype) | order by tensor.absmax{direction} | select tensor.absmax").items

    values = [item.get("absmax") for item in items]
    numbers = [value for value in values if value is not None and value == value]
    assert numbers == sorted(numbers, reverse=bool(direction))
    assert values[: len(numbers)] == numbers
    assert all(value is None for value in values[-values.count(None) :])


def test_first_and_last_are_the_ends_of_the_order(ask: Asked) -> None:
    whole = ask.page("tensor.nonfinite_count > 0").rows

    assert keys(ask.page("tensor.nonfinite_count > 0 | first").rows) == keys(whole[:1])
    assert keys(ask.page("tensor.nonfinite_count > 0 | last").rows) == keys(whole[-1:])
