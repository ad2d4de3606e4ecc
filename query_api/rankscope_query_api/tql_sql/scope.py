"""What the values of one SELECT can be made of: the entity's table, what is joined to it, what a window computes.

Values are compiled first and ask for what they need; `Scope.rows` then says where all of it comes from. Every table
reference, in whatever depth, compares project and run with their parameters in its own SELECT, and in PREWHERE: what
stands in WHERE is computed for other projects' rows of a granule, too (measured on 26.9: `toInt64(name) = 5` failed on
a text of another project), and index and push-down stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import SECTION, Entity, Origin
from rankscope_query_api.tql_sql.expressions import alias, all_of, call, called, column, constant, from_query, rows_of
from rankscope_query_api.tql_sql.parameters import Parameters
from rankscope_query_api.tql_sql.relations import relation


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value comes from.

    Attributes:
        value: The value; NULL or meaningless where `present` is false.
        present: True where the row has it, never NULL; None: always.
        nullable: Whether `value` is NULL exactly where the row has none.
        absent: The value that stands for "nothing", None if none does.
        is_float: Whether it can be NaN.
        table: ClickHouse type, without Nullable.
        wide: A computed integer before it was narrowed to 64 bits, for more arithmetic.
    """

    value: Expr
    present: Expr | None
    nullable: bool
    absent: int | str | None
    is_float: bool
    table: str
    wide: Expr | None = None

    @property
    def or_null(self) -> Expr:
        """The value, NULL where the row has none; a list is empty then."""
        if self.absent is not None:
            return call("nullIf", self.value.copy(), constant(self.absent))
        if self.present is None or self.nullable or self.table.startswith("Array"):
            return self.value.copy()
        return call("if", self.present.copy(), self.value.copy(), exp.null())


@dataclass(frozen=True, slots=True)
class Joined:
    """A sub-select of one row a key, joined to the left of which it may lack rows.

    Attributes:
        name: What the sub-select is called.
        grouped: The rows.
        keys: Its key columns, and what each equals in a row of the left side.
        columns: What was asked of it, by the name it has to the outside.
    """

    name: str
    grouped: Expr
    keys: Mapping[str, Expr]
    columns: dict[str, Expr] = field(default_factory=dict[str, Expr])

    def column(self, value: Expr) -> Expr:
        """A value over its columns, as the outside sees it.

        Where nothing is joined a Nullable one is NULL, another is its type's zero.
        """
        known = next((name for name, asked in self.columns.items() if asked == value), None)
        name = known or self._named(f"v{len(self.columns)}")
        self.columns[name] = value
        return column(name)

    def join(self, select: exp.Select) -> None:
        """Joins it to what a SELECT reads."""
        keys = {self._named(f"k{at}"): known for at, known in enumerate(self.keys)}
        shown = [alias(column(known), name) for name, known in keys.items()]
        shown += [alias(value.copy(), name) for name, value in self.columns.items()]
        inner = exp.Select(expressions=shown, from_=from_query(self.grouped, "grouped"))
        pairs = zip(keys, self.keys.values(), strict=True)
        on = all_of([exp.EQ(this=outer.copy(), expression=column(name)) for name, outer in pairs])
        select.append("joins", exp.Join(this=called(inner, f"{self.name}_joined"), side="LEFT", on=on))

    def _named(self, part: str) -> str:
        """A name that no column of a table has."""
        return f"{self.name}__{part}"


@dataclass(frozen=True, slots=True)
class Computed:
    """A column that is computed beside the rows.

    Attributes:
        name: What it is called.
        value: The expression, over the table's columns and those computed before.
        level: How many SELECTs lie under it: what another computed column is made of lies deeper.
    """

    name: str
    value: Expr
    level: int


@dataclass
class Scope:
    """The values of one SELECT.

    Attributes:
        entity: What its rows are.
        project: The only project to read.
        run: The only run to read; None: all of the project.
        parameters: Where values are bound.
        outputs: Columns of the stage before, by name; None: its rows are the entity's own.
        joined: What is joined to the rows, by the name of the join.
        computed: Windows, and what they are made of, in the order they were asked for.
        narrowing: Conditions that hold for all rows of a series or none, for the rows under the windows.
    """

    entity: Entity
    project: str
    run: str | None
    parameters: Parameters = field(default_factory=Parameters)
    outputs: Mapping[str, Source] | None = None
    joined: dict[str, Joined] = field(default_factory=dict[str, Joined])
    computed: list[Computed] = field(default_factory=list[Computed])
    narrowing: list[Expr] = field(default_factory=list[Expr])

    def behind(self, outputs: Mapping[str, Source]) -> "Scope":
        """The scope of a stage whose rows are what another stage made."""
        return Scope(self.entity, self.project, self.run, self.parameters, outputs=outputs)

    def companion(self, entity: Entity) -> "Scope":
        """The scope of other rows in the same statement."""
        return Scope(entity, self.project, self.run, self.parameters)

    def restriction(self) -> list[Expr]:
        """The conditions of every table reference: one project and, unless all are meant, one run."""
        scoped = [self._equals("project", "project", value=self.project)]
        if self.run is not None:
            scoped.append(self._equals("run_id", "run", value=self.run))
        return scoped

    def compute(self, value: Expr) -> Expr:
        """A column that is computed beside the rows, under a name of its own."""
        known = {one.name: one for one in self.computed}
        same = next((one.name for one in self.computed if one.value == value), None)
        if same is not None:
            return column(same)
        under = [known[found.name].level + 1 for found in value.find_all(exp.Column) if found.name in known]
        made = Computed(f"computed__{len(self.computed)}", value.copy(), max(under, default=0))
        self.computed.append(made)
        return column(made.name)

    def rows(self) -> exp.Select:
        """A SELECT of nothing yet, from the rows with all that their values have asked for."""
        select = self._base()
        for joined in self.joined.values():
            joined.join(select)
        if self.computed and self.narrowing:
            select.where(all_of([part.copy() for part in self.narrowing]), copy=False)
        for level in range(max((one.level + 1 for one in self.computed), default=0)):
            made = [alias(one.value.copy(), one.name) for one in self.computed if one.level == level]
            under = select.select(exp.Star(), *made, copy=False)
            select = exp.Select(from_=from_query(under, f"rows_{level}"))
        return select

    def _base(self) -> exp.Select:
        """The entity's own rows; traces and runs are no rows of a table."""
        if self.entity in SECTION:
            restricted = exp.PreWhere(this=all_of(self.restriction()))
            return exp.Select(from_=exp.From(this=rows_of(SECTION[self.entity].table)), prewhere=restricted)
        own = relation(Origin(self.entity), project=self.project, run=self.run, parameters=self.parameters)
        return exp.Select(from_=from_query(own, f"{self.entity}s_found"))

    def _equals(self, name: str, parameter: str, *, value: str) -> Expr:
        return exp.EQ(
            this=exp.Column(this=exp.Identifier(this=name, quoted=False)),
            expression=self.parameters.named(parameter, value, table="String"),
        )
