"""A value beside the earlier ones of its series: over all stored rows, whatever a query keeps, in TQL's order."""

import math
import statistics
from collections.abc import Iterator, Sequence

import pytest

from rankscope.tql import typed
from rankscope.tql.fields import Entity, Type
from rankscope_proto.v1 import batch_pb2 as pb
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import START, Row, Writer
from tests.query_api.tql.typed_rows import TypedRows, field, integer, real, text

NAN, INF = math.nan, math.inf
WAVES = [float((number * 7) % 11) for number in range(100)]
SERIES: dict[str, Sequence[float | None]] = {
    "steps": (1.0, 3.0, 2.0, 8.0),
    "holes": (None, 1.0, None, NAN, 4.0, INF, 2.0, None, -INF, 0.5),
    "never": (None, NAN, None),
    "still": (0.1,) * 40,
    "waves": WAVES,
    "edges": (1.7e308, -1.7e308, 1.7e308, 0.0, 1.0),
    "heap": (5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0, 9.0),
}
TENSOR = Entity.TENSOR
L2 = field("tensor.l2", TENSOR)
STEP = field("step", TENSOR)


def _row(name: str, step: int, value: float | None, /, *, count: int = 0) -> Row:
    return {"name": name, "role": 1, "step": step, "time": START, "l2": value, "nan_count": count}


def _batches() -> Iterator[pb.Batch]:
    first = Writer("study", 0)
    longest = max(len(values) for values in SERIES.values())
    early, late = [
        [_row(name, step, values[step]) for step in steps for name, values in SERIES.items() if step < len(values)]
        for steps in (range(2), range(2, longest))
    ]
    counts = [_row("counts", step, None, count=value) for step, value in enumerate((2**64 - 1, 5, 2**63 + 4, 3))]
    scalars: list[Row] = [{"name": name, "step": step, "value": float(step * sign), "time": START} for step in range(3)
                          for name, sign in (("loss", 1), ("lr", -1))]  # fmt: skip
    spans: list[Row] = [
        {"span_id": at + 1, "trace_lo": at + 1, "name": "step", "kind": 1, "step": at, "start": START + at,
         "duration": duration, "attributes": {"phase": f"p{at}"}, "path": "step"}
        for at, duration in enumerate((10, 20, 15))
    ]  # fmt: skip
    # What comes first was recorded last: the order of a series is not that of its arrival.
    sealed = [first.seal(tensor_stats=early, scalars=scalars, spans=spans), first.seal(tensor_stats=[*late, *counts])]
    yield from reversed(sealed)
    yield Writer("study", 1).seal(tensor_stats=[_row("steps", 5, 100.0)])
    yield Writer("study", 0, launch=b"M" * 16).seal(tensor_stats=[_row("steps", 9, 50.0)])
    foreign = Writer("study", 0, project="other", launch=b"N" * 16)
    yield foreign.seal(tensor_stats=[_row("steps", step, 1e9) for step in range(4)])


@pytest.fixture(scope="module")
def rows(front_process: FrontProcess) -> Iterator[TypedRows]:
    """Series with all that can befall them, and another rank, launch and project."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *_batches())
    yield TypedRows(store.client)
    store.drop()


def named(name: str) -> typed.Condition:
    """The tensor of a name, of rank 0 of the first launch."""
    return typed.AllOf(
        (
            typed.Compare("==", field("tensor.name", TENSOR), text(name)),
            typed.Compare("==", field("rank", TENSOR), integer(0)),
            typed.Compare("!=", field("launch", TENSOR), typed.Constant("4d" * 16, Type.ID, "String")),
        )
    )


def is_there(value: float | None) -> bool:
    """Whether a series goes on from it."""
    return value is not None and not math.isnan(value)


def previous(values: Sequence[float | None]) -> list[float | None]:
    """`prev` of a series."""
    return [next((one for one in reversed(values[:at]) if is_there(one)), None) for at in range(len(values))]


def mean(values: Sequence[float | None], count: int) -> list[float | None]:
    """`ema` of a series."""
    found: list[float | None] = []
    known: float | None = None
    for value in values:
        if value is not None and math.isfinite(value):
            known = value if known is None else known + 2 / (count + 1) * (value - known)
        found.append(known)
    return found


def deviation(values: Sequence[float | None], count: int) -> list[float | None]:
    """`robust_z` of a series of finite values."""
    found: list[float | None] = []
    for at, value in enumerate(values):
        earlier = [one for one in values[:at] if one is not None][-count:]
        middle = statistics.median(earlier) if earlier else 0.0
        spread = statistics.median([abs(one - middle) for one in earlier]) if earlier else 0.0
        is_known = value is not None and len(earlier) >= 8 and spread > 0
        found.append((value - middle) / (1.4826 * spread) if is_known and value is not None else None)
    return found


def history(function: str, value: typed.Value = L2, *, count: int = 0, kind: Type = Type.FLOAT) -> typed.History:
    """A value beside the earlier ones."""
    return typed.History(function, value, kind, count)  # pyright: ignore[reportArgumentType]


def show(values: Sequence[float | None]) -> list[str]:
    """Values that compare, NaN with itself."""
    return [repr(value) for value in values]


@pytest.mark.parametrize("name", SERIES)
def test_prev_passes_over_what_is_missing_or_nan(rows: TypedRows, name: str) -> None:
    found = rows.column(TENSOR, history("prev"), where=named(name))

    assert show(found) == show(previous(SERIES[name]))


@pytest.mark.parametrize("name", SERIES)
def test_delta_is_the_value_less_the_one_before(rows: TypedRows, name: str) -> None:
    found = rows.column(TENSOR, history("delta"), where=named(name))

    wanted: list[float | None] = []
    for value, before in zip(SERIES[name], previous(SERIES[name]), strict=True):
        step = None if value is None or before is None else value - before
        overflows = step is not None and math.isinf(step) and abs(value or 0) < INF and abs(before or 0) < INF
        wanted.append(None if overflows else step)
    assert show(found) == show(wanted)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("name", ["steps", "holes", "never", "still", "waves"])
def test_ema_is_the_mean_with_weights_that_fade(rows: TypedRows, name: str, count: int) -> None:
    found = rows.column(TENSOR, history("ema", count=count), where=named(name))

    wanted = mean(SERIES[name], count)
    assert [value is None for value in found] == [value is None for value in wanted]
    assert [value for value in found if value is not None] == pytest.approx(
        [value for value in wanted if value is not None], rel=1e-12
    )


def test_nothing_is_above_the_mean_of_a_series_that_stands_still(rows: TypedRows) -> None:
    above = typed.Compare("!=", L2, history("ema", count=7))

    assert rows.column(TENSOR, L2, where=typed.AllOf((named("still"), above))) == []


def test_a_mean_that_overflows_is_missing_and_stays_so(rows: TypedRows) -> None:
    assert rows.column(TENSOR, history("ema", count=3), where=named("edges")) == [1.7e308, None, None, None, None]


@pytest.mark.parametrize("count", [8, 9, 64])
@pytest.mark.parametrize("name", ["waves", "still", "steps", "heap"])
def test_robust_z_is_the_distance_from_the_median_in_deviations(rows: TypedRows, name: str, count: int) -> None:
    found = rows.column(TENSOR, history("robust_z", count=count), where=named(name))

    assert found == deviation(SERIES[name], count)
    assert (name == "waves") == any(value is not None for value in found)


def test_counts_of_64_bits_differ_exactly_or_not_at_all(rows: TypedRows) -> None:
    counts = field("tensor.nan_count", TENSOR)
    asked = [history(function, counts, kind=Type.INTEGER) for function in ("prev", "delta")]

    found = rows.ask(TENSOR, *asked, where=named("counts"))

    assert found == [(None, None), (2**64 - 1, None), (5, 2**63 - 1), (2**63 + 4, None)]


def test_a_duration_remembers_whole_ns(rows: TypedRows) -> None:
    duration = field("span.duration", Entity.SPAN)
    asked = [history(function, duration, count=2, kind=Type.DURATION) for function in ("prev", "delta", "ema")]

    # 10 + 2/3 * 10 = 16.67, and from there 2/3 * -1.67.
    assert rows.ask(Entity.SPAN, *asked) == [(None, None, 10), (10, 10, 17), (20, -5, 16)]


def test_a_text_and_a_metric_have_values_before_them(rows: TypedRows) -> None:
    phase = typed.Key("attr", "phase", Type.STRING)

    assert rows.column(Entity.SPAN, history("prev", phase, kind=Type.STRING)) == [None, "p0", "p1"]
    names = field("scalar.name", Entity.SCALAR)
    before = history("prev", field("scalar.value", Entity.SCALAR))
    assert set(rows.ask(Entity.SCALAR, names, before)) == {
        *(("loss", value) for value in (None, 0.0, 1.0)),
        *(("lr", value) for value in (None, 0.0, -1.0)),
    }


def test_a_process_begins_its_series_anew(rows: TypedRows) -> None:
    steps = typed.Compare("==", field("tensor.name", TENSOR), text("steps"))

    found = rows.ask(TENSOR, L2, history("prev"), where=steps)

    assert found == [(1.0, None), (3.0, 1.0), (2.0, 3.0), (8.0, 2.0), (100.0, None), (50.0, None)]


def test_a_condition_leaves_the_series_whole(rows: TypedRows) -> None:
    late = typed.Compare(">=", STEP, integer(3))
    tripled = typed.Compare(">", L2, typed.Arithmetic("*", real(3.0), history("prev"), Type.FLOAT))

    assert rows.ask(TENSOR, STEP, history("prev"), where=typed.AllOf((named("steps"), late))) == [(3, 2.0)]
    assert rows.ask(TENSOR, STEP, L2, where=typed.AllOf((named("steps"), tripled))) == [(3, 8.0)]


@pytest.mark.parametrize("is_or", [False, True])
def test_what_holds_for_a_whole_series_narrows_the_rows_under_the_windows(rows: TypedRows, is_or: bool) -> None:
    name = typed.Compare("==", field("tensor.name", TENSOR), text("steps"))
    above = typed.Compare(">", L2, history("prev"))
    condition = typed.AnyOf((name, above)) if is_or else typed.AllOf((name, above))

    statement, scope = rows.statement(TENSOR, [L2], where=condition)

    assert len(scope.narrowing) == (0 if is_or else 1)
    assert statement.partition("FROM (SELECT")[2].count('"name" = ') == (1 if is_or else 2)


STEP_IS = (
    typed.Compare("==", STEP, integer(2)),
    typed.Compare("<", STEP, integer(3)),
    typed.Compare("<=", STEP, integer(2)),
    typed.Between(STEP, integer(1), integer(2)),
    typed.OneOf(STEP, (integer(1), typed.Constant(2.0, Type.FLOAT, "Float64"))),
)


@pytest.mark.parametrize("until", STEP_IS)
def test_rows_after_the_last_step_that_is_asked_for_are_not_looked_at(rows: TypedRows, until: typed.Condition) -> None:
    asked = typed.AllOf((named("waves"), until, typed.Exists(history("prev"))))

    statement, scope = rows.statement(TENSOR, [STEP], where=asked)

    assert sum("step" in part.sql() for part in scope.narrowing) == 1
    assert rows.column(TENSOR, STEP, where=asked)[-1] == 2
    whole = [step for step, *_ in rows.ask(TENSOR, STEP, where=typed.AllOf((named("waves"), until))) if step > 0]
    assert rows.column(TENSOR, STEP, where=asked) == whole
    assert "OVER" in statement


def test_earlier_rows_are_looked_at_whatever_step_is_asked_for(rows: TypedRows) -> None:
    since = typed.AllOf((named("waves"), typed.Compare(">=", STEP, integer(50))))

    _, scope = rows.statement(TENSOR, [STEP], where=since)

    assert not any("step" in part.sql() for part in scope.narrowing)
    assert rows.column(TENSOR, history("prev"), where=since) == WAVES[49:-1]


def test_one_window_serves_all_that_ask_for_it(rows: TypedRows) -> None:
    asked = [history("prev"), history("delta"), typed.Arithmetic("+", history("prev"), L2, Type.FLOAT)]

    statement, _ = rows.statement(TENSOR, asked, where=typed.Exists(history("prev")))

    assert statement.count("OVER (") == 1
