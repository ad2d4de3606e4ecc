"""Stages: what each becomes, and what can be named behind it."""

import pytest

from rankscope.tql.fields import FIELDS, Entity, Type
from rankscope.tql.typed import (
    Across,
    Aggregate,
    AllOf,
    Column,
    Compare,
    Constant,
    Contains,
    Every,
    Exists,
    Filter,
    Key,
    Limit,
    Opposite,
    Order,
    OrderKey,
    Output,
    Reduced,
    Rows,
    Select,
    Truth,
)
from tests.tql.reading import refusal, stages, typed

DURATION = FIELDS["span.duration"][Entity.SPAN]
RANK = FIELDS["rank"][Entity.SPAN]


def reduced(stage: str, *, of: str = "exists(span.name)") -> Reduced:
    found = stages(f"{of} | {stage}")[0]
    assert isinstance(found, Aggregate | Across)
    return found.reduced if isinstance(found, Across) else found.reduced[0]


def test_leading_wheres_say_which_rows_and_later_ones_filter() -> None:
    query = typed("tensor.l2 > 1 | where rank == 0 | limit 3 | where rank == 1")

    assert isinstance(query.source, Rows)
    assert isinstance(query.source.condition, AllOf)
    assert [type(stage) for stage in query.stages] == [Limit, Filter]


def test_top_is_an_order_and_a_limit_and_last_a_limit_from_the_end() -> None:
    assert stages("exists(span.name) | top 3 by span.duration | last") == (
        Order((OrderKey(DURATION, is_descending=True),)),
        Limit(3),
        Limit(1, is_last=True),
    )


def test_an_attribute_orders_by_its_number_and_then_by_its_text() -> None:
    number, text = Key("attr", "x", Type.FLOAT), Key("attr", "x", Type.STRING)

    assert stages("exists(span.name) | order by attr.x desc") == (
        Order((OrderKey(number, is_descending=True), OrderKey(text, is_descending=True))),
    )


def test_a_selected_column_is_named_as_it_was_written() -> None:
    select, order = stages(
        'exists(span.name) | select rank,attr."odd key",span.duration*2 | order by span.duration * 2'
    )

    assert isinstance(select, Select)
    assert [column.name for column in select.columns] == ["rank", 'attr."odd key"', "span.duration * 2"]
    assert order == Order((OrderKey(Output("span.duration * 2", Type.DURATION)),))


def test_an_output_is_named_after_its_function() -> None:
    aggregate, where = stages("exists(span.name) | p50(span.duration) by rank | where p50 > 5ms and rank == 0")

    assert aggregate == Aggregate((Reduced("p50", "p50", (DURATION,), Type.DURATION),), (Column("rank", RANK),))
    assert where == Filter(
        AllOf(
            (
                Compare(">", Output("p50", Type.DURATION), Constant(5_000_000, Type.DURATION, "Int64")),
                Compare("==", Output("rank", Type.INTEGER), Constant(0, Type.INTEGER, "Int32")),
            )
        )
    )


def test_the_call_itself_may_be_written_again() -> None:
    short = stages("exists(span.name) | p50(span.duration) | where p50 > 5ms | order by p50")

    assert stages("exists(span.name) | p50(span.duration) | where p50( span.duration ) > 5ms | order by p50") == short


def test_two_calls_of_one_function_are_named_by_the_whole_call() -> None:
    aggregate, where = stages("exists(span.name) | max(span.duration), max(time) | where max(span.duration) > 5ms")

    assert isinstance(aggregate, Aggregate)
    assert [one.name for one in aggregate.reduced] == ["max(span.duration)", "max(time)"]
    assert where == Filter(
        Compare(">", Output("max(span.duration)", Type.DURATION), Constant(5_000_000, Type.DURATION, "Int64"))
    )
    assert refusal("exists(span.name) | max(span.duration), max(time) | where max > 5ms").code == "unknown_field"


def test_stretches_are_a_column_of_their_own() -> None:
    steps, where = stages("exists(span.name) | count() every 10 steps | where step > 100")
    times, _ = stages('exists(span.name) | count() every 30s | where time > "2026-11-29"')

    assert isinstance(steps, Aggregate)
    assert isinstance(times, Aggregate)
    assert (steps.every, times.every) == (Every(10, in_steps=True), Every(30_000_000_000, in_steps=False))
    assert where == Filter(Compare(">", Output("step", Type.INTEGER), Constant(100, Type.INTEGER, "Int64")))


def test_an_attribute_to_group_by_is_a_text_behind() -> None:
    aggregate, where = stages('exists(span.name) | count() by attr.x | where attr.x == "y"')

    assert isinstance(aggregate, Aggregate)
    assert aggregate.by == (Column("attr.x", Key("attr", "x", Type.ATTRIBUTE)),)
    assert where == Filter(Compare("==", Output("attr.x", Type.STRING), Constant("y", Type.STRING, "String")))


def test_words_keep_their_words_behind_a_group() -> None:
    _, where = stages('exists(span.name) | count() by span.status | where span.status == "error"')

    assert where == Filter(Compare("==", Output("span.status", Type.WORD), Constant(2, Type.WORD, "UInt8")))


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        ("count()", Type.INTEGER),
        ("sum(span.duration)", Type.DURATION),
        ("sum(rank)", Type.INTEGER),
        ("sum(attr.n)", Type.FLOAT),
        ("avg(rank)", Type.FLOAT),
        ("avg(span.duration)", Type.DURATION),
        ("p95(rank)", Type.FLOAT),
        ("quantile(span.duration, 0.5)", Type.DURATION),
        ("stddev(rank)", Type.FLOAT),
        ("min(span.name)", Type.STRING),
        ("max(span.start)", Type.TIME),
        ("first(span.status)", Type.WORD),
        ("last(attr.x)", Type.STRING),
        ("distinct(span.trace_id)", Type.INTEGER),
        ("rate()", Type.FLOAT),
        ("histogram(span.duration, 4)", Type.LIST),
        ("across rank: spread(span.duration)", Type.FLOAT),
        ("across rank: skew(span.start)", Type.DURATION),
        ("across rank: skew(rank)", Type.INTEGER),
        ("across rank: zscore(span.duration)", Type.FLOAT),
        ("across rank: outliers(span.duration)", Type.LIST),
        ("across mesh.dp: slowest(span.end)", Type.INTEGER),
        ("across rank: agree(span.name)", Type.BOOL),
        ("across rank: count_ranks()", Type.INTEGER),
        ("across rank: missing_ranks()", Type.LIST),
        ("across rank: median(rank)", Type.FLOAT),
        ("across rank: median(span.duration)", Type.DURATION),
    ],
)
def test_a_result_has_the_type_of_what_it_reduces(stage: str, kind: Type) -> None:
    assert reduced(stage).type is kind


def test_numbers_among_the_arguments_are_parameters() -> None:
    assert reduced("quantile(span.duration, 0.75)").parameter == 0.75
    assert reduced("histogram(span.duration, 20)").parameter == 20
    assert reduced("across rank: outliers(span.duration, 4)").parameter == 4
    assert reduced("across rank: outliers(span.duration)").parameter == 3


def test_a_list_compares_by_its_length_and_is_asked_what_it_contains() -> None:
    _, where, order = stages(
        "exists(span.name) | across rank: missing_ranks() by step "
        "| where missing_ranks > 0 and missing_ranks contains 3 and exists(missing_ranks) | order by missing_ranks"
    )

    length, ranks = Output("missing_ranks", Type.INTEGER), Output("missing_ranks", Type.LIST)
    assert where == Filter(
        AllOf(
            (
                Compare(">", length, Constant(0, Type.INTEGER, "Int64")),
                Contains(ranks, Constant(3, Type.INTEGER, "Int64")),
                Exists(ranks),
            )
        )
    )
    assert order == Order((OrderKey(length),))


def test_a_bool_is_true_or_there_and_not_true() -> None:
    agree = Output("agree", Type.BOOL)
    query = "exists(tensor.l2) | across rank: agree(tensor.fingerprint) by step | where agree"

    assert stages(f"{query} == true")[1] == Filter(Truth(agree))
    assert stages(f"{query} != false")[1] == Filter(Truth(agree))
    assert stages(f"{query} == false")[1] == Filter(AllOf((Exists(agree), Opposite(Truth(agree)))))


def test_results_can_be_compared_again_across_ranks() -> None:
    _, across = stages("exists(span.name) | avg(span.duration) by rank, step | across rank: spread(avg) by step")

    assert across == Across(
        "rank",
        Reduced("spread", "spread", (Output("avg", Type.DURATION),), Type.FLOAT),
        (Column("step", Output("step", Type.INTEGER)),),
    )
