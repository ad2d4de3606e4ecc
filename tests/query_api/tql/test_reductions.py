"""Aggregates and comparisons of floats, infinities and extremes among them, against the plainest Python."""

import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import START, Row, Writer
from tests.query_api.tql.computing import same
from tests.query_api.tql.conftest import Asked

INF, NAN, HUGE = math.inf, math.nan, 1.7e308
POOL = (1.0, 3.5, INF, -INF, HUGE, -HUGE, NAN, 5e-324)
CASES = [
    *itertools.combinations_with_replacement(POOL, 2),
    *itertools.combinations(POOL, 3),
    (INF, INF, INF, 1.0),
    (1.0, 1.1, 0.9, 1.0, INF),
    (-INF, -INF, 2.0, 4.0, INF, INF),
    tuple(float(value) for value in range(11)),
    (0.25,),
]


TIMES = (-31, -30, -1, 0, 29, 30)


def _of_rank(rank: int) -> list[Row]:
    known = {str(number): case[rank] for number, case in enumerate(CASES) if rank < len(case)}
    return [{"name": name, "step": 1, "value": value, "time": START} for name, value in known.items()]


@pytest.fixture(scope="module")
def cases(front_process: FrontProcess) -> Iterator[Asked]:
    """A metric of each case, its values one a rank."""
    store = Store(front_process.url)
    migrate(store.client)
    before = [{"name": "before", "step": 1, "value": 1.0, "time": time} for time in TIMES]
    ranks = [Writer("run", rank).seal(scalars=_of_rank(rank)) for rank in range(max(map(len, CASES)))]
    insert(store.client, *ranks, Writer("run", 0, project="negative").seal(scalars=before))
    yield Asked(store.client)
    store.drop()


def _quantile(values: Sequence[float], share: float) -> float | None:
    """Between the two nearest values; one that weighs nothing says nothing, and equal ones give themselves."""
    if not values:
        return None
    place = share * (len(values) - 1) + 1
    ordered = sorted(values)
    low, high = ordered[int(place) - 1], ordered[min(int(place), len(values) - 1)]
    part = place - int(place)
    if low == high:
        return low
    if low == -INF or (high == INF and part):
        return _known(low + high) if part else low
    return _finite(low + part * (min(high, sys.float_info.max) - low))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _stddev(values: Sequence[float]) -> float | None:
    if not values or not all(map(math.isfinite, values)) or (len({*values}) > 1 and HUGE in map(abs, values)):
        return None
    return statistics.pstdev(values)


AGGREGATES: dict[str, Callable[[Sequence[float]], float | None]] = {
    "p50(scalar.value)": lambda values: _quantile(values, 0.5),
    "p90(scalar.value)": lambda values: _quantile(values, 0.9),
    "p99(scalar.value)": lambda values: _quantile(values, 0.99),
    "quantile(scalar.value, 0)": lambda values: _quantile(values, 0),
    "quantile(scalar.value, 0.3)": lambda values: _quantile(values, 0.3),
    "quantile(scalar.value, 1)": lambda values: _quantile(values, 1),
    "stddev(scalar.value)": _stddev,
    "max(scalar.value)": lambda values: max(values, default=None),
}


@pytest.mark.parametrize("call", AGGREGATES)
def test_an_aggregate_of_floats_is_a_value_that_they_can_have_or_missing(cases: Asked, call: str) -> None:
    items = cases.page(f"exists(scalar.name) | {call} by scalar.name").items
    found = {item["name"]: next(value for key, value in item.items() if key != "name") for item in items}

    for number, case in enumerate(CASES):
        values = [value for value in case if not math.isnan(value)]
        assert _is_close(found[str(number)], AGGREGATES[call](values)), (case, found[str(number)])


def _is_close(found: float | None, wanted: float | None) -> bool:
    if found is None or wanted is None or not math.isfinite(wanted):
        return same(found, wanted)
    return math.isclose(found, wanted, rel_tol=1e-12)


def _median(values: Sequence[float]) -> float:
    """NaN where the two in the middle are the two infinities."""
    return statistics.fmean(middle) if math.isfinite(sum(middle := _middle(values))) else _of_extremes(middle)


def _middle(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered[(len(values) - 1) // 2], ordered[len(values) // 2]]


def _of_extremes(middle: Sequence[float]) -> float:
    return middle[0] if middle[0] == middle[1] else middle[0] / 2 + middle[1] / 2


def _skew(values: Sequence[float]) -> float | None:
    if max(values) == min(values):
        return 0.0
    distance = max(values) - min(values)
    return distance if any(map(math.isinf, values)) else _finite(distance)


def _spread(values: Sequence[float]) -> float | None:
    distance, median = _skew(values), abs(_median(values))
    if distance is None or median == 0 or math.isnan(median):
        return None
    share = distance / median
    return _known(share) if any(map(math.isinf, values)) else _finite(share)


def _outliers(values: dict[int, float]) -> list[int]:
    middle = _median([*values.values()])
    away = {rank: abs(value - middle) for rank, value in values.items()}
    if any(map(math.isnan, away.values())):
        return []
    typical = _median([*away.values()])
    is_known = math.isfinite(typical) and typical > 0
    return [rank for rank, distance in away.items() if is_known and distance > 3 * (1.4826 * typical)]


COMPARISONS: dict[str, Callable[[dict[int, float]], Any]] = {
    "median": lambda values: _known(_median([*values.values()])) if values else None,
    "skew": lambda values: _skew([*values.values()]) if values else None,
    "spread": lambda values: _spread([*values.values()]) if values else None,
    "outliers": lambda values: _outliers(values) if values else [],
}


@pytest.mark.parametrize("function", COMPARISONS)
def test_a_comparison_of_floats_is_a_value_that_they_can_have_or_missing(cases: Asked, function: str) -> None:
    items = cases.page(f"exists(scalar.name) | across rank: {function}(scalar.value) by scalar.name").items
    found = {item["name"]: item[function] for item in items}

    for number, case in enumerate(CASES):
        values = {rank: value for rank, value in enumerate(case) if not math.isnan(value)}
        wanted = COMPARISONS[function](values)
        answer = found.get(str(number), [] if function == "outliers" else None)
        is_same = answer == wanted if isinstance(wanted, list) else _is_close(answer, wanted)
        assert is_same, (case, answer, wanted)


def test_a_distance_in_standard_deviations_is_finite_or_missing(cases: Asked) -> None:
    items = cases.page("exists(scalar.name) | across rank: zscore(scalar.value) by scalar.name").items

    for item in items:
        values = [value for value in CASES[int(item["name"])] if not math.isnan(value)]
        deviation = _stddev(values)
        if deviation:
            mean = statistics.fmean(values)
            assert math.isclose(item["zscore"], max(abs(value - mean) for value in values) / deviation)
        else:
            assert item["zscore"] is None, values


def test_stretches_of_negative_numbers_begin_below_them(cases: Asked) -> None:
    found = cases.page("exists(scalar.name) | count() every 30ns", project="negative").items

    wanted = {begin: sum(begin <= time < begin + 30 for time in TIMES) for begin in (-60, -30, 0, 30)}
    assert {item["time_ns"]: item["count"] for item in found} == wanted
