"""Every value has a type, every literal the bits of what it stands beside."""

import pytest

from rankscope.tql.fields import FIELDS, Entity, Type
from rankscope.tql.typed import (
    AllOf,
    Apply,
    Arithmetic,
    Between,
    Compare,
    Constant,
    Contains,
    Exists,
    History,
    Key,
    Matches,
    OneOf,
    Opposite,
    Value,
)
from tests.tql.reading import column, condition, refusal


def right_of(text: str) -> Value:
    compared = condition(text)
    assert isinstance(compared, Compare)
    return compared.right


def type_of(text: str, *, of: str = "exists(span.name)") -> Type:
    return column(text, of=of).value.type


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("rank + 1", Type.INTEGER),
        ("rank * 2 % 3", Type.INTEGER),
        ("rank / 2", Type.FLOAT),
        ("rank + 1.5", Type.FLOAT),
        ("metric.x - rank", Type.FLOAT),
        ("attr.x * 2", Type.FLOAT),
        ("mesh.dp + 1", Type.INTEGER),
        ("span.duration + 5ms", Type.DURATION),
        ("span.duration * 2.5", Type.DURATION),
        ("2 * span.duration", Type.DURATION),
        ("span.duration / 3", Type.DURATION),
        ("span.duration / 1ms", Type.FLOAT),
        ("span.duration % 1ms", Type.DURATION),
        ("span.end - span.start", Type.DURATION),
        ("span.start + 5s", Type.TIME),
        ("5s + span.start", Type.TIME),
        ("span.start - span.duration", Type.TIME),
        ('span.start - "2026-11-29"', Type.DURATION),
        ("metric.x * 1KiB", Type.SIZE),
        ("-span.duration", Type.DURATION),
        ("-(rank + 1)", Type.INTEGER),
        ("abs(rank)", Type.INTEGER),
        ("abs(span.duration)", Type.DURATION),
        ("sqrt(rank)", Type.FLOAT),
        ("ratio(rank, 2)", Type.FLOAT),
        ("ratio(span.duration, 5ms)", Type.FLOAT),
        ("min(rank, local_rank, 3)", Type.INTEGER),
        ("max(rank, metric.x)", Type.FLOAT),
        ("max(span.start, span.end)", Type.TIME),
        ('coalesce(span.error_type, "none")', Type.STRING),
        ('coalesce(span.status, "ok")', Type.WORD),
        ("coalesce(attr.x, 0)", Type.FLOAT),
        ("coalesce(attr.x, attr.y)", Type.STRING),
        ("prev(span.status)", Type.WORD),
        ("prev(span.duration)", Type.DURATION),
        ("delta(span.start)", Type.DURATION),
        ("delta(rank)", Type.INTEGER),
        ("ema(rank, 3)", Type.FLOAT),
        ("ema(span.duration, 3)", Type.DURATION),
        ("robust_z(span.duration)", Type.FLOAT),
        ("attr.x", Type.ATTRIBUTE),
        ("run.config.lr", Type.ATTRIBUTE),
        ("run.tag", Type.LIST),
    ],
)
def test_a_value_has_the_type_of_what_it_is_made_of(expression: str, kind: Type) -> None:
    assert type_of(expression) is kind


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("tensor.zero_frac == 0.1", Constant(0.10000000149011612, Type.FLOAT, "Float32")),
        ("tensor.l2 == 0.1", Constant(0.1, Type.FLOAT, "Float64")),
        ("prev(tensor.zero_frac) == 0.1", Constant(0.10000000149011612, Type.FLOAT, "Float32")),
        ("tensor.zero_frac + 0 == 0.1", Constant(0.1, Type.FLOAT, "Float64")),
        ("tensor.nan_count == 18446744073709551615", Constant(2**64 - 1, Type.INTEGER, "UInt64")),
        ("tensor.nan_count + 1 > 5", Constant(5, Type.INTEGER, "Int64")),
        ("tensor.nan_count > 0.5", Constant(0.5, Type.FLOAT, "Float64")),
        ("span.duration > 1.5ms", Constant(1_500_000, Type.DURATION, "Int64")),
        ("span.duration / 2 > 1us", Constant(1_000, Type.DURATION, "Int64")),
        ('span.kind == "tool"', Constant(4, Type.WORD, "UInt8")),
        ('run.status == "failed"', Constant(3, Type.WORD, "UInt8")),
        ('prev(span.kind) == "tool"', Constant(4, Type.WORD, "UInt8")),
        ('span.start == "2000-01-01T00:00:00.000000001Z"', Constant(946_684_800_000_000_001, Type.TIME, "Int64")),
        (
            'trace.id == "00112233-4455-6677-8899-AABBCCDDEEFF"',
            Constant("00112233445566778899aabbccddeeff", Type.ID, "String"),
        ),
        ("attr.x == true", Constant("true", Type.STRING, "String")),
        ("attr.x == 3", Constant(3.0, Type.FLOAT, "Float64")),
    ],
)
def test_a_literal_has_the_type_and_width_of_what_it_stands_beside(text: str, constant: Constant) -> None:
    assert right_of(text) == constant


def test_a_literal_on_the_left_turns_the_comparison_round() -> None:
    assert condition("5ms < span.duration") == condition("span.duration > 5ms")


def test_an_attribute_is_read_as_what_it_is_compared_with() -> None:
    name = FIELDS["span.name"][Entity.SPAN]

    assert condition('attr.x == "a"') == Compare(
        "==", Key("attr", "x", Type.STRING), Constant("a", Type.STRING, "String")
    )
    assert condition("attr.x == span.name") == Compare("==", Key("attr", "x", Type.STRING), name)
    assert condition("rank > attr.x") == Compare(">", FIELDS["rank"][Entity.SPAN], Key("attr", "x", Type.FLOAT))
    assert condition("attr.x in 1..2") == Between(
        Key("attr", "x", Type.FLOAT), Constant(1.0, Type.FLOAT, "Float64"), Constant(2.0, Type.FLOAT, "Float64")
    )
    assert condition('attr.x contains "a"') == Contains(
        Key("attr", "x", Type.STRING), Constant("a", Type.STRING, "String")
    )
    assert condition('attr.x !~ "a+"') == Matches(Key("attr", "x", Type.STRING), "a+", is_opposite=True)


def test_keys_are_of_attributes_metrics_settings_and_the_mesh() -> None:
    both = condition('run.config.optim.lr == 1 and run.config."odd key" == "x" and mesh.dp == 0 and metric.a.b > 0')

    assert isinstance(both, AllOf)
    assert [part.left for part in both.operands if isinstance(part, Compare)] == [
        Key("run.config", "optim.lr", Type.FLOAT),
        Key("run.config", "odd key", Type.STRING),
        Key("mesh", "dp", Type.INTEGER),
        Key("metric", "a.b", Type.FLOAT),
    ]


def test_missing_is_the_opposite_of_exists() -> None:
    name = FIELDS["span.name"][Entity.SPAN]

    assert condition("missing(span.name)") == Opposite(Exists(name))
    assert condition("not exists(span.name)") == Opposite(Exists(name))


def test_literals_within_a_function_are_read_as_its_first_other_value() -> None:
    value = column("max(tensor.zero_frac, 0.1)", of="exists(tensor.l2)").value

    assert isinstance(value, Apply)
    assert value.arguments[1] == Constant(0.10000000149011612, Type.FLOAT, "Float32")


def test_the_opposite_of_a_number_is_its_product_with_minus_one() -> None:
    value = column("-metric.x").value

    assert value == Arithmetic("*", Key("metric", "x", Type.FLOAT), Constant(-1, Type.INTEGER, "Int64"), Type.FLOAT)


def test_a_window_is_64_unless_said() -> None:
    duration = FIELDS["span.duration"][Entity.SPAN]

    assert column("robust_z(span.duration)").value == History("robust_z", duration, Type.FLOAT, 64)
    assert column("robust_z(span.duration, 8)").value == History("robust_z", duration, Type.FLOAT, 8)
    assert column("ema(span.duration, 10)").value == History("ema", duration, Type.DURATION, 10)


def test_a_list_of_literals_may_mix_whole_and_broken_numbers() -> None:
    assert condition("rank in [1, 1.5] and exists(span.name)") == AllOf(
        (
            OneOf(
                FIELDS["rank"][Entity.SPAN],
                (Constant(1, Type.INTEGER, "Int32"), Constant(1.5, Type.FLOAT, "Float64")),
            ),
            Exists(FIELDS["span.name"][Entity.SPAN]),
        )
    )


def test_an_interval_may_end_at_a_field() -> None:
    rank, local = FIELDS["rank"][Entity.SPAN], FIELDS["local_rank"][Entity.SPAN]

    interval = condition("rank in 0..local_rank and exists(span.name)")

    assert isinstance(interval, AllOf)
    assert interval.operands[0] == Between(rank, Constant(0, Type.INTEGER, "Int32"), local)


def test_a_list_is_asked_what_it_contains() -> None:
    tag, hist = FIELDS["run.tag"][Entity.RUN], FIELDS["tensor.log2_hist"][Entity.TENSOR]

    assert condition('run.tag contains "a"') == Contains(tag, Constant("a", Type.STRING, "String"))
    assert condition("tensor.log2_hist contains 3") == Contains(hist, Constant(3, Type.INTEGER, "Int64"))
    assert refusal('run.tag == "a"').hint == 'ask whether it contains something: run.tag contains "a"'


@pytest.mark.parametrize(
    ("written", "nanoseconds"),
    [
        ("2000-01-01", 946_684_800_000_000_000),
        ("2000-01-01T00:00:00.5Z", 946_684_800_500_000_000),
        ("2000-01-01T01:00:00.000000001+01:00", 946_684_800_000_000_001),
    ],
)
def test_a_time_is_read_to_the_nanosecond(written: str, nanoseconds: int) -> None:
    assert right_of(f'span.start == "{written}"') == Constant(nanoseconds, Type.TIME, "Int64")


@pytest.mark.parametrize("written", ["2026-11-29T12:00:00.1234567891Z", "2026-11-29T12:00:00,5Z", "20261129T120000.5"])
def test_a_fraction_that_would_be_lost_is_refused(written: str) -> None:
    assert refusal(f'span.start == "{written}"').code == "bad_time"
