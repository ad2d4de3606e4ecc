"""What numpy remembers of many series is what plain Python remembers, to the last bit."""

import math
import random
from collections.abc import Sequence

import pytest

from rankscope.tql.evaluate_columns import LiveRows
from rankscope.tql.evaluate_history import Past
from rankscope.tql.evaluate_series import memory
from rankscope.tql.fields import FIELDS, Entity, Type
from rankscope.tql.typed import History

VALUE = FIELDS["scalar.value"][Entity.SCALAR]
AWKWARD = (None, None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.0, 1e308, -1e308, 5e-324, 7, 2**63)
NODES = [
    *(History("ema", VALUE, Type.FLOAT, count) for count in (1, 2, 3, 10, 10_000)),
    History("ema", FIELDS["span.duration"][Entity.SPAN], Type.DURATION, 10),
    *(History("robust_z", VALUE, Type.FLOAT, count) for count in (8, 9, 31, 64)),
]


def batches(names: Sequence[str], rows: int) -> list[LiveRows]:
    """Batches of rows, in each some of the series."""
    chance = random.Random(11)
    made: list[LiveRows] = []
    for step in range(150):
        of = chance.sample(names, rows) if rows <= len(names) else chance.choices(names, k=rows)
        made.append(
            LiveRows(
                Entity.SCALAR, {"name": of, "step": step, "time": [0] * rows, "value": [_value(chance) for _ in of]}
            )
        )
    return made


def _value(chance: random.Random) -> float | None:
    return chance.choice(AWKWARD) if chance.random() < 0.1 else chance.gauss(5, 2)


@pytest.mark.parametrize("node", NODES, ids=lambda node: f"{node.function}({node.count})")
@pytest.mark.parametrize(("names", "rows"), [(80, 60), (3, 20), (1, 1)], ids=["apart", "several", "alone"])
def test_numpy_remembers_what_plain_python_does(node: History, names: int, rows: int) -> None:
    plain, fast = Past(node, Entity.SCALAR), Past(node, Entity.SCALAR, memory=memory(node))
    given = 0

    for batch in batches([f"s{number}" for number in range(names)], rows):
        values = batch.stored("value")
        expected = plain.take(batch, values)
        assert repr(fast.take(batch, values)) == repr(expected)
        given += sum(value is not None for value in expected)

    assert given
