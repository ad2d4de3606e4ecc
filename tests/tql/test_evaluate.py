"""The agent's evaluator on batches as processes make them: blocks of columns, arrays, headers, pasts."""

import array
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from rankscope import tql
from rankscope._block import Block
from rankscope.probe.rows import Columns, Numbers, Row, Subject
from rankscope.probe.tensors import Traits
from rankscope.tql import evaluate, evaluate_history
from rankscope.tql.evaluate import Evaluator, LiveRows
from rankscope.tql.fields import Entity


@pytest.fixture(params=["numpy", "plain Python"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test with either engine."""
    monkeypatch.setattr(evaluate, "FEW_ROWS", 0)
    if request.param == "plain Python":
        monkeypatch.setattr(evaluate, "_engine", lambda: evaluate.PLAIN)


def asked(text: str) -> Evaluator:
    """The evaluator of a predicate."""
    return Evaluator.of(tql.check(tql.parse(text)))


def matches(text: str, **batch: Any) -> list[bool]:
    """What a predicate says of one batch."""
    return asked(text).matches(batch)


def block(*numbers: Numbers, step: int = 3) -> Block:
    """A block of statistics as the probe makes them."""
    rows = [
        Row(
            Subject(f"layers.{at}.w", f"layers.{at}", at or None, "mlp" if at % 2 else "", 2),
            Traits("torch.float32", (2, at), "", 2 * at, 2 * at),
            phase=3,
            flags=0,
            time_ns=1_795_971_713_000_000_000 + at,
            step=step,
            microstep=0,
            numbers=known,
        )
        for at, known in enumerate(numbers)
    ]
    return Columns().block(rows)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor.l2 > 2", [False, True, False]),
        ("not (tensor.l2 > 2)", [True, False, True]),
        ("missing(tensor.l2)", [False, False, True]),
        ("tensor.nonfinite_count == 0", [True, False, False]),
        ("exists(tensor.nan_count)", [False, True, False]),
        ("layer.index >= 1 or missing(layer.index)", [True, True, True]),
        ("layer.type == 'mlp'", [False, True, False]),
        ("missing(layer.type)", [True, False, True]),
        ("tensor.role == 'grad' and step in 3..3", [True, True, True]),
        ("tensor.shape == '[2, 1]'", [False, True, False]),
        ("tensor.name =~ 'layers[.][02][.].*'", [True, False, True]),
        ("tensor.absmax / tensor.l2 == 0.5", [True, True, False]),
        ("rank == 7 and tensor.numel < 4", [True, True, False]),
        ("exists(tensor.mean)", [False, False, False]),
    ],
)
def test_a_block_of_the_probe_is_a_batch_as_it_stands(text: str, expected: list[bool]) -> None:
    made = block(
        Numbers(nonfinite_count=0, absmax=0.5, l2=1.0),
        Numbers(nonfinite_count=2, nan_count=1, absmax=2.0, l2=4.0),
        Numbers(),
    )

    assert asked(text).matches({**made.columns, "rank": 7}) == expected


def test_a_live_value_is_as_wide_as_its_column() -> None:
    assert matches("tensor.absmax == 0.1 and tensor.l2 == 0.1", absmax=[0.1, 0.5], l2=[0.1, 0.1]) == [True, False]


def doubles(values: list[float]) -> "array.array[float]":
    """An array of the standard library."""
    return array.array("d", values)


MAKERS: tuple[Any, ...] = (list, tuple, np.array, doubles)


@pytest.mark.parametrize("make", MAKERS)
def test_columns_may_be_lists_tuples_and_arrays(make: Any) -> None:
    batch = {"l2": make([1.0, 5.0, math.nan]), "absmax": make([1.0, 5.0, 9.0])}

    assert matches("tensor.l2 > 2", **batch) == [False, True, False]
    assert matches("tensor.absmax > 2 and not isnan(tensor.l2)", **batch) == [False, True, False]


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "float32", "float16"])
def test_arrays_of_any_width_are_numbers(dtype: str) -> None:
    batch = {
        "nan_count": np.array([0, 1, 7]).astype("u8" if "float" in dtype else dtype),
        "l2": np.array([0, 1, 7], dtype),
    }

    assert matches("tensor.nan_count > 0 and tensor.l2 > 1.5", **batch) == [False, False, True]


def test_sixty_four_bits_are_compared_exactly() -> None:
    counts = [2**53, 2**53 + 1, 2**63, 2**64 - 1]

    assert matches("tensor.nan_count > 9007199254740992", nan_count=counts) == [False, True, True, True]
    assert matches("tensor.nan_count == 18446744073709551615", nan_count=np.array(counts, np.uint64))[-1]
    assert matches("tensor.nan_count > tensor.l2", nan_count=counts, l2=[2.0**53] * 4) == [False, True, True, True]


def test_what_overflows_or_divides_by_zero_is_missing() -> None:
    counts = [0, 2**62, 2**63 - 1]

    assert matches("exists(tensor.nan_count + tensor.nan_count)", nan_count=counts) == [True, False, False]
    assert matches("exists(tensor.nan_count * 3)", nan_count=counts) == [True, False, False]
    assert matches("exists(1 / tensor.nan_count)", nan_count=counts) == [False, True, True]
    assert matches("exists(tensor.l2 * 1e308)", l2=[1.0, 10.0, math.inf]) == [True, False, True]
    assert matches("exists(7 % tensor.nan_count)", nan_count=counts) == [False, True, True]


def test_flags_are_asked_as_truths_and_none_is_set_where_a_batch_has_none() -> None:
    flags = [64, 32 | 8, 0]

    assert matches("tensor.skipped == true", flags=flags) == [True, False, False]
    assert matches("tensor.sampled == false and tensor.reduced != true", flags=flags) == [True, False, True]
    assert matches("tensor.skipped == true", l2=[1.0]) == [False]


def test_ids_are_compared_as_bytes_numbers_and_text() -> None:
    launch = "00112233-4455-6677-8899-aabbccddeeff"
    given = bytes.fromhex(launch.replace("-", ""))
    text = f"launch == '{launch}' and tensor.fingerprint == 'ffffffffffffffff'"

    assert matches(text, launch_id=given, fingerprint=[2**64 - 1, 1]) == [True, False]
    assert matches(text, launch_id=launch, fingerprint=[None, 2**64 - 1]) == [False, True]


def test_attributes_come_as_maps_or_laid_flat() -> None:
    text = "attr.device == 'cuda:0' and metric.reward < 0 and span.name contains 'a'"
    flat = {
        "name": ["ab", "b"],
        "attribute_keys": ["device", "x", "device"],
        "attribute_values": ["cuda:0", "y", "cuda:0"],
        "attribute_n": [2, 1],
        "metric_keys": ["reward", "reward"],
        "metric_values": [-1.0, -2.0],
        "metric_n": [1, 1],
    }
    maps = {"name": ["ab", "b"], "attributes": [{"device": "cuda:0"}, {}], "metrics": [{"reward": -1.0}, None]}

    assert matches(text, **flat) == [True, False]
    assert matches(text, **maps) == [True, False]


def test_what_a_process_knows_of_its_run_is_asked_by_name() -> None:
    known = {"run.name": "night", "run.tag": ["a", "b"], "run.config": {"optimizer": {"lr": 0.1}}, "mesh": {"dp": 2}}
    text = "run.tag contains 'b' and run.config.optimizer.lr > 0.05 and mesh.dp == 2 and run.name == 'night'"

    assert matches(f"{text} and tensor.l2 > 1", l2=[1.0, 2.0], **known) == [False, True]
    assert matches("missing(run.tag) and missing(mesh.tp) and tensor.l2 > 1", l2=[1.0, 2.0]) == [False, True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run.config.lr > 0.05", True),
        ("run.config.lr == 'x' or run.config.deep.on > 0", False),
        ("run.config.deep.on == true and run.config.deep.betas == '[0.9, 0.99]'", True),
        ("exists(run.config.lr) and exists(run.config.deep)", True),
        ("exists(run.config.nothing) or exists(run.config.lr.more)", False),
        ("run.config.a.b == 'as it stands'", True),
    ],
)
def test_a_setting_is_a_number_or_a_text(text: str, expected: bool) -> None:
    config = {"lr": 0.1, "deep": {"on": True, "betas": [0.9, 0.99]}, "nothing": None, "a.b": "as it stands"}

    assert matches(f"({text}) and exists(tensor.l2)", l2=[1.0], **{"run.config": config}) == [expected]


def test_the_past_is_kept_from_batch_to_batch_and_by_series() -> None:
    spikes = asked("tensor.l2 > 3 * prev(tensor.l2)")

    def answers(step: int, *norms: float) -> list[bool]:
        return spikes.matches(block(*(Numbers(l2=norm) for norm in norms), step=step).columns)

    assert answers(0, 1.0, 1.0) == [False, False]
    assert answers(1, 2.0, 4.0) == [False, True]
    assert answers(2, 9.0, 5.0) == [True, False]


def test_rows_of_one_batch_come_after_one_another_in_the_order_of_their_steps() -> None:
    batch = {"name": ["loss"] * 4, "value": [3.0, 1.0, 9.0, 2.0], "step": [2, 0, 3, 1], "time": [5, 6, 7, 8]}

    assert matches("scalar.value == 1 + prev(scalar.value)", **batch) == [True, False, False, True]


def test_a_nan_and_a_missing_value_are_no_earlier_ones() -> None:
    batch = {"name": ["w"] * 4, "l2": [1.0, None, math.nan, 2.0], "step": [0, 1, 2, 3], "time": [0] * 4}

    assert matches("prev(tensor.l2) == 1", **batch) == [False, True, True, True]
    assert matches("delta(tensor.l2) == 1", **batch) == [False, False, False, True]


def test_a_gradient_before_and_after_its_reduction_and_two_calls_of_a_module_have_pasts_of_their_own() -> None:
    rising = asked("tensor.l2 > prev(tensor.l2)")
    local, reduced, skipped = 4, 8, 64

    def answers(*values: float, flags: list[int], calls: list[int]) -> list[bool]:
        rows = {"name": ["w"] * 3, "l2": list(values), "flags": flags, "call": calls, "time": [0] * 3}
        return rising.matches({**rows, "step": 0})

    assert answers(5.0, 1.0, 9.0, flags=[local, reduced, local], calls=[0, 0, 1]) == [False] * 3
    assert answers(4.0, 2.0, 8.0, flags=[local, reduced, local], calls=[0, 0, 1]) == [False, True, False]
    # Other bits do not tell series apart.
    assert answers(9.0, 1.0, 9.0, flags=[local | skipped, reduced | skipped, local], calls=[0, 0, 1]) == [
        True,
        False,
        True,
    ]


def test_processes_have_pasts_of_their_own() -> None:
    rising = asked("delta(scalar.value) > 0")

    def answers(process: bytes, value: float) -> list[bool]:
        return rising.matches({"name": ["loss"], "value": [value], "step": 1, "time": 0, "incarnation": process})

    assert answers(b"a" * 16, 1.0) == [False]
    assert answers(b"b" * 16, 2.0) == [False]
    assert answers(b"a" * 16, 3.0) == [True]


def test_the_longest_silent_series_is_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate_history, "MOST_SERIES", 2)
    known = asked("exists(prev(scalar.value))")

    def answer(name: str) -> bool:
        return known.matches({"name": [name], "value": [1.0], "step": 0, "time": 0})[0]

    assert [answer(name) for name in ("a", "b", "a", "c", "a", "b")] == [False, False, True, False, True, False]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tensor.l2 > 1 | count()", "no stages"),
        ("tensor.l2 > 1 and span.duration > 1s", "no second entity"),
        ("span.name == 'a' >> span.name == 'b'", "no relations"),
        ("trace.duration > 1s and span.name == 'a'", "trace.duration is made of many rows"),
        ("span.child_count > 3", "span.child_count is made of many rows"),
        ("run.status == 'failed'", "no process makes rows of run"),
    ],
)
def test_what_a_live_row_cannot_tell_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(tql.TqlUnsupported, match=named) as refused:
        asked(text)

    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "batch", "message"),
    [
        ("rank == 1 and tensor.l2 > 1", {"l2": [1.0]}, "add it to the batch"),
        ("tensor.l2 > 1", {"l2": 1.0}, "give at least one as a list"),
        ("tensor.l2 > 1", {"l2": [1.0], "absmax": [1.0, 2.0]}, "differ in length"),
    ],
)
def test_a_batch_that_lacks_something_is_refused_by_name(text: str, batch: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        matches(text, **batch)


def test_a_batch_without_rows_has_no_answers() -> None:
    assert matches("tensor.l2 > 3 * prev(tensor.l2)", l2=[], step=[]) == []


def test_a_condition_needs_no_numpy() -> None:
    program = """
import sys
sys.modules["numpy"] = None
from rankscope import tql
from rankscope.tql.evaluate import Evaluator, LiveRows
from rankscope.tql.fields import Entity
print(Evaluator.of(tql.check(tql.parse("tensor.l2 > 2 * prev(tensor.l2) or tensor.absmax > 1"))).matches(
    {"l2": [1.0, 5.0], "absmax": [0.5, 0.5], "name": ["w", "w"], "step": [0, 1], "time": [0, 0]}))
"""

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "[False, True]"


def test_nothing_of_it_is_imported_before_somebody_asks() -> None:
    program = "import sys, rankscope; print(*(name for name in sys.modules if 'evaluate' in name or name == 'numpy'))"

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout.split() == []


CONDITIONS = (
    "tensor.l2 > 2",
    "tensor.nonfinite_count == 0 or layer.type == 'mlp'",
    "tensor.l2 > 1.5 * prev(tensor.l2)",
    "ema(tensor.l2, 3) > 2 or robust_z(tensor.l2) > 1",
    "tensor.name =~ 'layers.*' and layer.index in 1..2",
)


def steps() -> list[Block]:
    """What a probe hands over in some steps."""
    return [
        block(*(Numbers(at % 2, l2=1.0 + (step * at) % 5) for at in range(4)), Numbers(), step=step)
        for step in range(12)
    ]


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions_that_share_the_rows_of_a_batch_answer_as_alone(text: str) -> None:
    alone, together, other = asked(text), asked(text), asked("tensor.l2 < 3 and layer.type == 'mlp'")

    for made in steps():
        rows = LiveRows(Entity.TENSOR, made.columns)
        other.matches(rows)
        assert together.matches(rows) == alone.matches(made.columns)


@pytest.mark.parametrize("text", CONDITIONS)
@pytest.mark.parametrize("places", [(0,), (3, 1), (4,), range(5), ()], ids=str)
def test_some_rows_of_a_batch_are_asked_as_if_they_were_all(text: str, places: tuple[int, ...]) -> None:
    of_some, of_all = asked(text), asked(text)

    for made in steps():
        answers = of_all.matches(made.columns)
        assert of_some.matches(LiveRows(Entity.TENSOR, made.columns).at(places)) == [answers[at] for at in places]


def test_a_hit_tells_what_the_condition_saw() -> None:
    text = """
        tensor.role == 'grad' and tensor.l2 > 2 * prev(tensor.l2) and missing(layer.index) and attempt == 3
        and coalesce(tensor.nan_count, 7) < 9 and launch == '00112233445566778899aabbccddeeff'
        and step == 5 and ema(tensor.l2 + 1, 3) > 0 and run.config."a b" == 'c' and tensor.dtype != 'x'
    """
    known = {"attempt": 3, "launch_id": bytes.fromhex("00112233445566778899aabbccddeeff"), "run.config": {"a b": "c"}}
    jumps = asked(text)
    jumps.matches({**block(Numbers(l2=1.0), step=4).columns, **known})

    answers = jumps.matches({**block(Numbers(l2=5.0), Numbers(l2=9.0), step=5).columns, **known})

    assert answers == [True, False]
    assert jumps.seen(0) == {
        "tensor.role": "grad",
        "tensor.l2": 5.0,
        "prev(tensor.l2)": 1.0,
        "layer.index": None,
        "attempt": 3,
        "tensor.nan_count": None,
        "launch": "00112233445566778899aabbccddeeff",
        "step": 5,
        "ema((tensor.l2 + 1), 3)": 4.0,
        'run.config."a b"': "c",
        "tensor.dtype": "torch.float32",
    }
    assert jumps.seen(1)["prev(tensor.l2)"] is None


def test_of_rows_that_were_not_asked_nothing_was_seen() -> None:
    spikes = asked("tensor.l2 > 1")

    with pytest.raises(IndexError, match="asked of none"):
        spikes.seen(0)
    spikes.matches({"l2": [1.0]})
    with pytest.raises(IndexError):
        spikes.seen(1)
