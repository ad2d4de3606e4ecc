"""A random condition on random events gives the same rows from the agent's evaluator and from ClickHouse."""

import functools
import itertools
from collections.abc import Iterator, Mapping

import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import HealthCheck, given, reject, settings

from rankscope import tql
from rankscope.tql import evaluate, typed
from rankscope.tql.evaluate import Evaluator
from rankscope.tql.fields import FIELDS, Entity
from rankscope_query_api.tql_sql import compile_query
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.tql.events import Process, foreign, processes
from tests.query_api.tql.oracle import Placed, holds, placed
from tests.query_api.tql.random_conditions import SCALARS, SPANS, TENSORS, conditions
from tests.query_api.tql.rows import Row
from tests.query_api.tql.writing import written

PATIENT = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
MANY = settings(PATIENT, max_examples=100)
EVENTS = processes()
SIZES = (3, 25, 1, 8)
"""Rows of one batch after the other."""
KEYS = {Entity.TENSOR: "time", Entity.SPAN: "span.span_id", Entity.SCALAR: "time"}
"""What tells the rows of an entity apart."""


@functools.cache
def rows_of(entity: Entity) -> list[Placed]:
    """All rows of an entity in TQL's total order."""
    return placed(EVENTS, entity)


def key_of(known: Placed) -> int:
    """What tells a row apart."""
    return known.row["span_id" if known.entity is Entity.SPAN else "time"]


def columns_of(process: Process, rows: list[Row]) -> Mapping[str, object]:
    """Rows as the columns of a batch."""
    header = {"rank": process.rank, "local_rank": process.rank, "incarnation": process.incarnation}
    return header | {name: [row[name] for row in rows] for name in rows[0]}


def of_agents(condition: typed.Condition, entity: Entity) -> list[int]:
    """The rows that the agents of all processes find, each batch by batch."""
    found: set[int] = set()
    for process in EVENTS:
        agent = Evaluator(condition, entity)
        mine = [known for known in rows_of(entity) if known.process is process]
        # A process makes its rows in their total order, however they were numbered in these events.
        for size in itertools.cycle(SIZES):
            part, mine = mine[:size], mine[size:]
            if not part:
                break
            answers = agent.matches(columns_of(process, [known.row for known in part]))
            found.update(key_of(known) for known, answer in zip(part, answers, strict=True) if answer)
    return [key_of(known) for known in rows_of(entity) if key_of(known) in found]


def of_store(client: Client, query: typed.Typed) -> list[int]:
    """The rows that ClickHouse finds, in the order of the answer."""
    compiled = compile_query(query, project="default", run="run-1", limit=10_000)
    return [row[0] for row in client.query(compiled.sql, parameters=compiled.parameters).result_rows]


def selected(condition: typed.Condition, entity: Entity) -> typed.Typed:
    """The query of the keys of the rows of which a condition is true."""
    key = typed.Column(KEYS[entity], FIELDS[KEYS[entity]][entity])
    return typed.Typed(typed.Rows(entity, condition), (typed.Select((key,)),), entity)


def same(found: list[int], condition: typed.Condition, entity: Entity) -> None:
    """Those are the rows that the language says, in its order."""
    wanted = [key_of(known) for known in rows_of(entity) if holds(condition, known)]
    wrong = [known.row for known in rows_of(entity) if (key_of(known) in found) is not (key_of(known) in wanted)]
    assert not wrong, f"{written(condition)}\n{len(wrong)} rows, such as {wrong[0]}"
    assert found == wanted


@pytest.fixture(params=["numpy", "plain Python"])
def agent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the agent evaluates with."""
    monkeypatch.setattr(evaluate, "FEW_ROWS", 0)
    if request.param == "plain Python":
        monkeypatch.setattr(evaluate, "_engine", lambda: evaluate.PLAIN)
    return str(request.param)


@pytest.fixture(scope="module")
def store(front_process: FrontProcess) -> Iterator[Client]:
    """The events, and another project's, in a database of their own."""
    made = Store(front_process.url)
    migrate(made.client)
    for number, sealed in enumerate(sealed for process in EVENTS for sealed in process.sealed()):
        insert(made.client, sealed, token=f"events-{number}")
    insert(made.client, *foreign(), token="foreign")
    yield made.client
    made.drop()


@given(conditions(TENSORS))
@PATIENT
def test_the_agent_finds_the_tensors_that_the_language_says(agent: str, condition: typed.Condition) -> None:
    same(of_agents(condition, Entity.TENSOR), condition, Entity.TENSOR)


@given(conditions(SPANS))
@PATIENT
def test_the_agent_finds_the_spans_that_the_language_says(agent: str, condition: typed.Condition) -> None:
    same(of_agents(condition, Entity.SPAN), condition, Entity.SPAN)


@given(conditions(SCALARS))
@PATIENT
def test_the_agent_finds_the_scalars_that_the_language_says(agent: str, condition: typed.Condition) -> None:
    same(of_agents(condition, Entity.SCALAR), condition, Entity.SCALAR)


@given(conditions(TENSORS))
@PATIENT
def test_the_store_finds_the_tensors_that_the_language_says(store: Client, condition: typed.Condition) -> None:
    same(of_store(store, selected(condition, Entity.TENSOR)), condition, Entity.TENSOR)


@given(conditions(SPANS))
@PATIENT
def test_the_store_finds_the_spans_that_the_language_says(store: Client, condition: typed.Condition) -> None:
    same(of_store(store, selected(condition, Entity.SPAN)), condition, Entity.SPAN)


@given(conditions(SCALARS))
@PATIENT
def test_the_store_finds_the_scalars_that_the_language_says(store: Client, condition: typed.Condition) -> None:
    same(of_store(store, selected(condition, Entity.SCALAR)), condition, Entity.SCALAR)


def asked_as_text(store: Client, condition: typed.Condition, entity: Entity) -> None:
    """The condition as a query's text means one thing: to the agents, to the store, and as the language says."""
    scope = f"{entity}.name"
    text = f"{written(condition)} and (exists({scope}) or missing({scope})) | select {KEYS[entity]}"
    try:
        query = tql.check(tql.parse(text))
    except tql.TqlError:
        reject()
    assert isinstance(query.source, typed.Rows)
    assert query.entity is entity
    found = of_agents(query.source.condition, entity)
    assert of_store(store, query) == found
    same(found, query.source.condition, entity)


@given(conditions(TENSORS))
@MANY
def test_a_text_about_tensors_means_the_same_to_agent_and_store(store: Client, condition: typed.Condition) -> None:
    asked_as_text(store, condition, Entity.TENSOR)


@given(conditions(SPANS))
@MANY
def test_a_text_about_spans_means_the_same_to_agent_and_store(store: Client, condition: typed.Condition) -> None:
    asked_as_text(store, condition, Entity.SPAN)


@given(conditions(SCALARS))
@MANY
def test_a_text_about_scalars_means_the_same_to_agent_and_store(store: Client, condition: typed.Condition) -> None:
    asked_as_text(store, condition, Entity.SCALAR)
