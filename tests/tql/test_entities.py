"""What the rows of a query are follows from what it names."""

import pytest

from rankscope.tql.fields import Entity
from rankscope.tql.typed import AllOf, Companion, Compare, Related, Rows, Traces
from tests.tql.reading import refusal, typed


@pytest.mark.parametrize(
    ("text", "entity"),
    [
        ("tensor.l2 > 1", Entity.TENSOR),
        ('layer.type == "mlp"', Entity.TENSOR),
        ('module.class == "Linear"', Entity.TENSOR),
        ("exists(span.name)", Entity.SPAN),
        ("attr.x == 1", Entity.SPAN),
        ("metric.x > 1", Entity.SPAN),
        ("scalar.value > 1", Entity.SCALAR),
        ("exists(gap.cause)", Entity.GAP),
        ("exists(event.kind)", Entity.EVENT),
        ('hit.breakpoint == "b"', Entity.HIT),
        ('hit.seen."tensor.l2" > 1', Entity.HIT),
        ("collective.wait > 5ms", Entity.COLLECTIVE),
        ("collective.async == true and mesh.dp == 1", Entity.COLLECTIVE),
        ('system.name == "cpu.busy" and node == "a"', Entity.SYSTEM),
        ("trace.duration > 1s", Entity.TRACE),
        ('run.status == "failed"', Entity.RUN),
        ("run.config.lr > 0.1", Entity.RUN),
        ('trace.error_count > 0 and run.name == "a"', Entity.TRACE),
        ("trace.error_count > 0 and rank == 0 and exists(span.name)", Entity.SPAN),
        ('run.name == "a" and exists(span.name)', Entity.SPAN),
        ("rank == 0 | select span.name", Entity.SPAN),
        ("rank == 0 > rank == 1", Entity.SPAN),
        ("{rank == 0} and {rank == 1}", Entity.TRACE),
        ("{exists(span.name)}", Entity.TRACE),
        ("project == 'a' | select trace.id", Entity.TRACE),
    ],
)
def test_the_rows_are_those_of_what_is_named_first(text: str, entity: Entity) -> None:
    assert typed(text).entity is entity


def test_spans_beside_tensors_are_a_semi_join_that_keeps_shared_keys() -> None:
    source = typed("tensor.l2 > 1 and span.duration > 1s and step in 1..3 | where attr.x == 1").source

    assert isinstance(source, Rows)
    assert isinstance(source.condition, AllOf)
    assert len(source.condition.operands) == 2
    (companion,) = source.companions
    assert companion.entity is Entity.SPAN
    assert isinstance(companion.condition, AllOf)
    assert len(companion.condition.operands) == 3


def test_what_looks_back_does_so_in_its_own_series_only() -> None:
    source = typed("tensor.l2 > 1 and span.duration > 1s and delta(step) > 1").source

    assert isinstance(source, Rows)
    assert isinstance(source.condition, AllOf)
    assert len(source.condition.operands) == 2
    assert isinstance(source.companions[0].condition, Compare)


def test_traces_beside_tensors_are_those_of_the_steps_spans() -> None:
    source = typed("tensor.l2 > 1 and trace.duration > 5s").source

    assert isinstance(source, Rows)
    assert [type(one) for one in source.companions] == [Companion]
    assert source.companions[0].entity is Entity.SPAN


def test_structure_and_trace_sets_ask_of_spans() -> None:
    related = typed('span.kind == "tool" > span.status == "error" !>> rank == 0').source
    traces = typed("{rank == 0} && {rank == 1} without {rank == 2}").source

    assert isinstance(related, Related)
    assert [one.operator for one in related.relations] == [">", "!>>"]
    assert isinstance(traces, Traces)
    assert [operator for operator, _ in traces.relations] == ["and", "without"]
    assert refusal("{tensor.l2 > 1}").code == "foreign_field"


def test_a_foreign_condition_behind_a_limit_is_refused() -> None:
    error = refusal("exists(tensor.l2) | limit 3 | where span.duration > 1s")

    assert (error.code, error.hint) == ("foreign_field", "leave it out, or ask about span rows")


def test_a_figure_is_asked_by_its_name() -> None:
    error = refusal("system.power > 1")

    assert (error.code, error.expected) == (
        "unknown_field",
        ("system.name", "system.device", "system.value", "system.time"),
    )
    assert error.hint == "name one that there is"


def test_what_a_breakpoint_saw_is_asked_by_its_key() -> None:
    assert refusal("hit.seen == 1").hint == 'write a key of it, as in hit.seen."tensor.l2"'
