"""Values on their way to ClickHouse: bound by name and type, never part of the SQL text."""

from dataclasses import dataclass, field

from sqlglot import exp

Value = int | float | str
"""What can be bound."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement ready to be sent.

    Attributes:
        sql: Its text.
        parameters: Values of its placeholders.
    """

    sql: str
    parameters: dict[str, Value]


@dataclass
class Parameters:
    """Hands out placeholders such as `{p0: UInt8}` and remembers what they stand for.

    Attributes:
        values: Value by parameter name, as clickhouse-connect takes them.
    """

    values: dict[str, Value] = field(default_factory=dict[str, Value])
    _known: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def bind(self, value: Value, table: str) -> exp.Placeholder:
        """A placeholder for a value of a ClickHouse type; one value has one placeholder."""
        known = (table, repr(value))
        if known not in self._known:
            self._known[known] = f"p{len(self._known)}"
        return self.named(self._known[known], value, table=table)

    def named(self, name: str, value: Value, *, table: str) -> exp.Placeholder:
        """A placeholder of a given name."""
        self.values[name] = value
        return exp.Placeholder(this=exp.var(name), kind=exp.var(table))
