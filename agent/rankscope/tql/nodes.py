"""The syntax tree: frozen values that say what was written, nothing about what it means.

Two trees are equal when they say the same, wherever it stands: `place` is not compared, so
that `parse(format(tree)) == tree` holds.
"""

from dataclasses import dataclass, field

from rankscope.tql.errors import NOWHERE, Place


@dataclass(frozen=True, slots=True)
class Node:
    """Anything in the tree.

    Attributes:
        place: Where it stands in the text.
    """

    place: Place = field(default=NOWHERE, compare=False, kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class FieldRef(Node):
    """A field by name: `rank` (scope ""), `tensor.l2`, `attr."odd key"` (key without quotes)."""

    scope: str
    key: str

    @property
    def name(self) -> str:
        """The name as the field table spells it."""
        return f"{self.scope}.{self.key}" if self.scope else self.key


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A number as written, `text` without its unit; `unit` is "" or one of UNITS."""

    text: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A string, without quotes and escapes."""

    value: str


@dataclass(frozen=True, slots=True)
class Boolean(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Negate(Node):
    """Unary minus."""

    operand: "Value"


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """Two values joined by one of `+ - * / %`."""

    operator: str
    left: "Value"
    right: "Value"


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function or an aggregate."""

    function: str
    arguments: tuple["Value", ...] = ()


Value = FieldRef | Number | Text | Boolean | Negate | Arithmetic | Call
"""What can stand on a side of a comparison."""


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """Two values joined by one of `== != < <= > >=`."""

    operator: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Match(Node):
    """`value =~ "pattern"`, or `!~`."""

    operator: str
    value: Value
    pattern: Text


@dataclass(frozen=True, slots=True)
class Contains(Node):
    """`value contains part`."""

    value: Value
    part: Value


@dataclass(frozen=True, slots=True)
class Choices(Node):
    """`[1, 2]`."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Interval(Node):
    """`low..high`, both ends included."""

    low: Value
    high: Value


@dataclass(frozen=True, slots=True)
class Membership(Node):
    """`value in choices`, or in an interval."""

    value: Value
    among: Choices | Interval


@dataclass(frozen=True, slots=True)
class Test(Node):
    """One of TESTS asked of a value, such as `exists(x)`."""

    question: str
    value: Value


@dataclass(frozen=True, slots=True)
class Not(Node):
    """The opposite of a predicate."""

    operand: "Predicate"


@dataclass(frozen=True, slots=True)
class And(Node):
    """All of two or more predicates."""

    operands: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or(Node):
    """At least one of two or more predicates."""

    operands: tuple["Predicate", ...]


Predicate = Comparison | Match | Contains | Membership | Test | Not | And | Or
"""What is true or false of one row."""


@dataclass(frozen=True, slots=True)
class Relation(Node):
    """The right side of a structural operator (`>> B`), or of a joined set (`without {B}`)."""

    operator: str
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Structure(Node):
    """`A >> B`: a predicate and one or more relations, read from the left."""

    first: Predicate
    relations: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class TraceSet(Node):
    """`{A} and {B}`: traces that have a span of each, or the one `without` the other."""

    first: Predicate
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class Where(Node):
    """Keep the rows of which it is true."""

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Select(Node):
    """Return these values only."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Every(Node):
    """Group by stretches of steps (`every 10 steps`) or of time (`every 30s`)."""

    size: Number
    in_steps: bool


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """One or more aggregates, per group."""

    calls: tuple[Call, ...]
    by: tuple[Value, ...] = ()
    every: Every | None = None


@dataclass(frozen=True, slots=True)
class Across(Node):
    """One comparison over all ranks, layers or coordinates of a mesh axis, per group."""

    axis: FieldRef
    call: Call
    by: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class OrderKey(Node):
    """A value to order by."""

    value: Value
    descending: bool = False


@dataclass(frozen=True, slots=True)
class OrderBy(Node):
    """Order the rows; missing values and NaN come last either way."""

    keys: tuple[OrderKey, ...]


@dataclass(frozen=True, slots=True)
class Top(Node):
    """The `count` rows with the greatest value."""

    count: Number
    value: Value


@dataclass(frozen=True, slots=True)
class First(Node):
    """The first row in order."""


@dataclass(frozen=True, slots=True)
class Last(Node):
    """The last row in order."""


@dataclass(frozen=True, slots=True)
class Limit(Node):
    """At most `count` rows."""

    count: Number


Stage = Where | Select | Aggregate | Across | OrderBy | Top | First | Last | Limit
"""What can stand after `|`."""


@dataclass(frozen=True, slots=True)
class Query(Node):
    """A whole query."""

    selection: Predicate | Structure | TraceSet
    stages: tuple[Stage, ...] = ()


TESTS = ("exists", "missing", "isnan", "isinf", "isfinite")
"""The questions that `Test` asks."""
