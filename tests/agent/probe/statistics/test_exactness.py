"""Every statistic is what plain Python makes of the elements, in both engines, for every type and odd tensor."""

import math
from functools import cache
from itertools import chain

import pytest
import torch
from torch import Tensor

from rankscope.probe.rows import Numbers
from rankscope.probe.statistics import norms, table, tables
from rankscope.probe.statistics.layout import LENGTH
from tests.agent.probe.statistics.plain import bytes_of, differences, fingerprint, plain_table
from tests.agent.probe.statistics.tensors import COMPLEX, FLOAT8, FLOATS, WHOLE, arranged, odd, sized, typed

pytestmark = pytest.mark.usefixtures("each_engine")

TOLERANCE = 1e-6


@cache
def cases(dtype: torch.dtype) -> list[tuple[str, Tensor, Numbers]]:
    """Tensors of a type with the tables they have; what floats show is not shown again by rarer types."""
    every = chain(sized(), odd()) if dtype in FLOATS else (*list(sized())[-4:], *list(odd())[::4], *list(odd())[-3:])
    made = [(name, typed(values, dtype)) for name, values in every]
    return [(name, values, plain_table(values)) for name, values in made]


@pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8, *WHOLE, *COMPLEX], ids=str)
def test_a_table_has_what_its_elements_say(dtype: torch.dtype) -> None:
    wrong = [
        f"{name}: {each}"
        for name, values, wanted in cases(dtype)
        for each in differences(table(values), wanted, tolerance=TOLERANCE)
    ]

    assert not wrong


@pytest.mark.parametrize("length", [4_096, LENGTH])
def test_strides_and_views_change_no_statistic(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.probe.statistics.layout.LENGTH", length)

    wrong = [
        f"{name}: {each}"
        for name, values in arranged()
        for each in differences(table(values), plain_table(values), tolerance=TOLERANCE)
    ]

    assert not wrong


def test_another_default_device_of_the_program_changes_no_statistic() -> None:
    given = [values for _, values in arranged()]
    wanted = tables(given)

    with torch.device("meta"):
        found = tables(given)

    assert found == wanted


def test_the_elements_that_a_sparse_tensor_does_not_store_are_zeros() -> None:
    stored = torch.tensor([1.0, -3.0, 0.0, math.nan])

    found = table(stored, 996)

    assert not differences(found, plain_table(stored, 996), tolerance=TOLERANCE)
    assert (found.zero_count, found.fingerprint, sum(found.log2_hist)) == (997, None, 2)


def test_many_tensors_in_one_call_have_the_tables_that_each_has_alone() -> None:
    given = [typed(values, dtype) for _, values in list(sized())[:12] for dtype in (*FLOATS, *COMPLEX, *WHOLE[:3])]
    given += [values for _, values in arranged()]

    for together, each in zip(tables(given), given, strict=True):
        assert not differences(together, table(each), tolerance=1e-12)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn, torch.complex64], ids=str)
def test_norms_are_those_of_the_table(dtype: torch.dtype) -> None:
    given = cases(dtype)

    for found, (name, values, wanted) in zip(norms([values for _, values, _ in given]), given, strict=True):
        only = Numbers(*wanted[:5]) if values.numel() else Numbers()
        assert not differences(found, only, tolerance=TOLERANCE), name


def test_norms_of_other_orders_in_memory_are_the_same() -> None:
    for _, values in arranged():
        (found,) = norms([values])

        assert not differences(found, Numbers(*plain_table(values)[:5]), tolerance=TOLERANCE)


def test_a_finite_number_is_never_stored_as_infinite() -> None:
    (huge, full) = tables(
        [torch.full((3,), 1e200, dtype=torch.float64), torch.full((3,), 1.7e308, dtype=torch.float64)]
    )

    assert (huge.absmax, huge.mean, huge.std, huge.l2) == (None, None, 0.0, pytest.approx(1e200 * math.sqrt(3)))
    assert (full.l1, full.l2, full.nonfinite_count, full.saturated_count) == (None, None, 0, 0)


def test_zeros_have_a_greatest_magnitude_of_zero_without_a_sign() -> None:
    for values in (torch.zeros(3), -torch.zeros(9_000)):
        assert math.copysign(1.0, table(values).absmax or 0.0) == 1.0


def test_a_fingerprint_is_that_of_its_definition() -> None:
    values = torch.tensor([1.0, 2.0, 3.0])

    assert table(values).fingerprint == fingerprint(bytes_of(values)) == 0x10EF338C31D2B7ED


def test_a_fingerprint_tells_an_order_and_one_changed_bit() -> None:
    values = torch.arange(10_000.0)
    swapped, changed = values.clone(), values.clone()
    swapped[[3, 9_000]] = swapped[[9_000, 3]]
    changed[5_000] = changed[5_000].nextafter(torch.tensor(math.inf))

    prints = [each.fingerprint for each in tables([values, swapped, changed, values.clone()])]

    assert prints[0] == prints[3]
    assert len(set(prints)) == 3


def test_neither_the_tensor_nor_random_numbers_to_come_change() -> None:
    values = torch.randn(70_000).relu()
    before, state = values.clone(), torch.get_rng_state()

    table(values)
    norms([values])

    assert torch.equal(values, before)
    assert torch.equal(torch.get_rng_state(), state)
