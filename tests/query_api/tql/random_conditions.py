"""Random typed conditions over the fields that random events have: every node, every type, edges as constants."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import strategies as st

from rankscope.tql import typed
from rankscope.tql.fields import FIELDS, Entity, Type
from tests.query_api.tql.events import NAMES, TEXTS

T = TypeVar("T")

SYMBOLS = ("==", "!=", "<", "<=", ">", ">=")
PATTERNS = (
    ".*",
    "",
    "layers[.][0-9]+[.].*",
    "(a|b|\n)+.*",
    "[^a-z]*",
    "w|ok|cuda:[01]",
    ".{1,3}",
    "λ.+",
    "(?:True|true)?",
)
FLOATS = (0.0, -0.0, 1.0, 3.0, 0.1, -1.5, 10.0, 100.0, 1e-300, 1e300, 2.0**53, 2.0**63, 2.0**64, 1.7976931348623157e308)
FLOATS32 = (0.0, -0.0, 1.0, 3.0, 0.10000000149011612, -1.5, 10.0, 100.0, 2.0**53, 2.0**64, 1.401298464324817e-45)
WHOLE = (0, 1, -1, 2, 3, 7, 10, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
LARGE = (2**63, 2**64 - 1)
MOMENTS = (1_795_971_713_000_000_000, 1_795_971_713_000_000_001)


@dataclass(frozen=True)
class Named:
    """What conditions on an entity can name, by type."""

    entity: Entity
    of: dict[Type, Sequence[typed.Value]]
    words: Sequence[tuple[typed.Value, Sequence[int]]]
    ids: Sequence[tuple[typed.Value, Sequence[str]]]


def _fields(entity: Entity, *names: str) -> list[typed.Value]:
    return [FIELDS[name][entity] for name in names]


_ATTRIBUTES = [typed.Key("attr", key, Type.STRING) for key in ("device", "odd key'", "x", "none")]
_NUMBERS = [typed.Key(scope, key, Type.FLOAT) for scope, key in (("attr", "n"), ("attr", "x"), ("metric", "reward"))]

TENSORS = Named(
    Entity.TENSOR,
    {
        Type.FLOAT: _fields(Entity.TENSOR, "tensor.absmax", "tensor.mean", "tensor.l1", "tensor.l2"),
        Type.INTEGER: _fields(
            Entity.TENSOR,
            *("tensor.nan_count", "tensor.zero_count", "tensor.numel", "step", "microstep", "rank", "layer.index"),
        ),
        Type.STRING: _fields(Entity.TENSOR, "tensor.name", "module.path", "layer.type"),
        Type.TIME: _fields(Entity.TENSOR, "time"),
    },
    [(FIELDS["tensor.role"][Entity.TENSOR], (1, 2, 5)), (FIELDS["phase"][Entity.TENSOR], (2, 3))],
    [(FIELDS["tensor.fingerprint"][Entity.TENSOR], ("0" * 16, "f" * 16, "0" * 15 + "1"))],
)
SPANS = Named(
    Entity.SPAN,
    {
        Type.FLOAT: _NUMBERS,
        Type.INTEGER: _fields(Entity.SPAN, "step", "rank", "span.depth"),
        Type.STRING: [*_fields(Entity.SPAN, "span.name", "span.error_type", "span.path"), *_ATTRIBUTES],
        Type.DURATION: _fields(Entity.SPAN, "span.duration"),
        Type.TIME: _fields(Entity.SPAN, "span.start", "span.end"),
    },
    [(FIELDS["span.kind"][Entity.SPAN], (6, 14)), (FIELDS["span.status"][Entity.SPAN], (1, 2))],
    [
        (FIELDS["span.trace_id"][Entity.SPAN], ("0" * 15 + "7" + "0" * 15 + "1", "f" * 32)),
        (FIELDS["span.parent_id"][Entity.SPAN], (f"{1_000_003:016x}", "f" * 16)),
    ],
)
SCALARS = Named(
    Entity.SCALAR,
    {
        Type.FLOAT: _fields(Entity.SCALAR, "scalar.value"),
        Type.INTEGER: _fields(Entity.SCALAR, "step", "rank"),
        Type.STRING: _fields(Entity.SCALAR, "scalar.name"),
        Type.TIME: _fields(Entity.SCALAR, "time"),
    },
    [],
    [],
)


class Maker:
    """Draws conditions on what an entity has."""

    def __init__(self, draw: st.DrawFn, named: Named) -> None:
        self.draw = draw
        self.named = named

    def of(self, *choices: T) -> T:
        """One of them."""
        return self.draw(st.sampled_from(choices))

    def condition(self, depth: int = 2) -> typed.Condition:
        """A condition, of other conditions down to a depth."""
        if not depth or self.of(True, True, False):
            return self.of(self.comparison, self.comparison, self.text, self.test, self.exact, self.smooth)()
        if self.of(True, False, False):
            return typed.Opposite(self.condition(depth - 1))
        parts = tuple(self.condition(depth - 1) for _ in range(self.of(2, 3)))
        return self.of(typed.AllOf, typed.AnyOf)(parts)

    def constant(self, kind: Type) -> typed.Constant:
        """A constant; whole numbers within 64 bits signed, as arithmetic takes them."""
        if kind is Type.FLOAT:
            return typed.Constant(self.of(*FLOATS), kind, "Float64")
        if kind is Type.STRING:
            return typed.Constant(self.of(*(text for text in (*NAMES, *TEXTS) if text)), kind, "String")
        return typed.Constant(self.of(*(MOMENTS if kind is Type.TIME else WHOLE)), kind, "Int64")

    def value(self, kind: Type, depth: int = 2) -> typed.Value:
        """A value of a type, missing in some rows; not a constant."""
        if not depth or self.of(True, True, False):
            return self.of(*self.named.of[kind]) if kind in self.named.of else self.constant(kind)
        inner = self.value(kind, depth - 1)
        made: list[Callable[[], typed.Value]] = [
            lambda: typed.Apply("coalesce", (inner, self.side(kind, depth - 1)), kind)
        ]
        if kind is not Type.STRING:
            made.append(lambda: typed.Apply(self.of("min", "max"), (inner, self.side(kind, depth - 1)), kind))
            made.append(lambda: typed.History("prev", inner, kind))
            made += [self.of(*self.computed(kind, inner, depth - 1))] * 3
        return self.of(*made)()

    def side(self, kind: Type, depth: int) -> typed.Value:
        """A value, or a constant."""
        return self.constant(kind) if self.of(True, False) else self.value(kind, depth)

    def computed(self, kind: Type, inner: Any, depth: int, /) -> list[Callable[[], typed.Value]]:
        """What can be computed of a value of a type, and is of that type."""
        change: list[Callable[[], typed.Value]] = [lambda: typed.History("delta", inner, kind)]
        size: list[Callable[[], typed.Value]] = [lambda: typed.Apply("abs", (inner,), kind)]
        match kind:
            case Type.INTEGER:
                return [*change, *size, lambda: self.joined("+-*%", inner, self.side(kind, depth), kind)]
            case Type.FLOAT:
                return [*change, *size, *self._of_floats(inner, depth)]
            case Type.DURATION:
                return [*change, *size, *self._of_durations(inner, depth)]
            case _:
                length = self.side(Type.DURATION, depth)
                return [lambda: typed.Arithmetic(self.of("+", "-"), inner, length, kind)]

    def joined(self, symbols: str, left: Any, right: Any, kind: Type, /) -> typed.Value:
        """Two values by one of some operators, either first."""
        sides = self.of((left, right), (right, left))
        return typed.Arithmetic(self.of(*symbols), *sides, kind)  # type: ignore[arg-type] -- a character of them

    def _of_floats(self, inner: Any, depth: int) -> list[Callable[[], typed.Value]]:
        one = Type.FLOAT

        def either() -> typed.Value:
            return self.side(self.of(one, Type.INTEGER), depth)

        def whole() -> typed.Value:
            return self.value(Type.INTEGER, depth)

        return [
            lambda: self.joined("+-*/%", inner, either(), one),
            lambda: self.joined("+-*/%", inner, self.side(one, depth), one),
            lambda: typed.Arithmetic("/", whole(), whole(), one),
            lambda: typed.Apply(self.of("sqrt", "log2"), (self.of(inner, whole()),), one),
            lambda: typed.Apply("ratio", self.of((inner, either()), (either(), inner)), one),
            lambda: typed.Apply(self.of("min", "max", "coalesce"), (inner, whole()), one),
            lambda: typed.History("ema", self.of(inner, whole()), one, self.of(1, 2, 3, 10, 100)),
            lambda: typed.History("robust_z", self.of(inner, whole()), one, self.of(8, 9, 20, 64)),
        ]

    def _of_durations(self, inner: Any, depth: int) -> list[Callable[[], typed.Value]]:
        one = Type.DURATION
        return [
            lambda: typed.History("ema", inner, one, self.of(1, 3, 10)),
            lambda: self.joined("+-%", inner, self.side(one, depth), one),
            lambda: typed.Arithmetic(self.of("*", "/"), inner, self.constant(self.of(Type.FLOAT, Type.INTEGER)), one),
            lambda: typed.Arithmetic("*", self.constant(self.of(Type.FLOAT, Type.INTEGER)), inner, one),
            lambda: typed.Arithmetic("-", self.value(Type.TIME, depth), self.value(Type.TIME, depth), one),
        ]

    def comparison(self) -> typed.Condition:
        """Values that have an order."""
        kind = self.of(*self.named.of)
        value = self.value(kind)
        match self.of("field", "two", "two", "between", "one of", "exists"):
            case "two":
                other = self.side(self.of(kind, *([*_NUMBERS_ONLY - {kind}] if kind in _NUMBERS_ONLY else [])), 1)
                return typed.Compare(self.of(*SYMBOLS), *self.of((value, other), (other, value)))
            case "between":
                return typed.Between(value, self.side(kind, 1), self.side(kind, 1))
            case "one of":
                return typed.OneOf(value, tuple(self.constant(kind) for _ in range(self.of(1, 2, 3))))
            case "exists":
                return typed.Exists(value)
            case _:
                return self._of_field(self.of(*self.named.of[kind]), kind)

    def _of_field(self, field: Any, kind: Type) -> typed.Condition:
        """A field beside a constant as the checker makes it: of the field's own width and range."""
        table = getattr(field, "table", "Float64")
        constant = self.constant(kind)
        if table == "Float32":
            constant = typed.Constant(self.of(*FLOATS32), kind, table)
        elif table == "UInt64":
            constant = typed.Constant(self.of(0, 1, 7, *LARGE), kind, table)
        return typed.Compare(self.of(*SYMBOLS), field, constant)

    def text(self) -> typed.Condition:
        """Patterns and parts."""
        value = self.value(Type.STRING, 1)
        if self.of(True, False):
            return typed.Matches(value, self.of(*PATTERNS), self.of(True, False))
        return typed.Contains(value, self.side(Type.STRING, 0))

    def test(self) -> typed.Condition:
        """Questions about floats."""
        return typed.FloatTest(self.of("isnan", "isinf", "isfinite"), self.value(Type.FLOAT))

    def exact(self) -> typed.Condition:
        """Words and ids, which have no order."""
        known = [(field, Type.WORD, "UInt8", codes) for field, codes in self.named.words]
        known += [(field, Type.ID, "String", digits) for field, digits in self.named.ids]
        if not known:
            return self.test()
        field, kind, table, values = self.of(*known)
        choices = [typed.Constant(value, kind, table) for value in values]
        match self.of("equal", "one of", "exists"):
            case "equal":
                return typed.Compare(self.of("==", "!="), field, self.of(*choices))
            case "one of":
                return typed.OneOf(field, tuple(choices[: self.of(1, 2)]))
            case _:
                return typed.Exists(field)

    def smooth(self) -> typed.Condition:
        """A logarithm whose last bit is the machine's own, beside what none of its values equals."""
        value = typed.Apply("log10", (self.of(*self.named.of[Type.FLOAT]),), Type.FLOAT)
        return typed.Compare(self.of("<", ">"), value, typed.Constant(self.of(0.7071, 1.01213), Type.FLOAT, "Float64"))


_NUMBERS_ONLY = {Type.INTEGER, Type.FLOAT}


@st.composite
def conditions(draw: st.DrawFn, named: Named) -> typed.Condition:
    """Random conditions on the rows of an entity."""
    return Maker(draw, named).condition()
