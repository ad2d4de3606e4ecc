"""The two statements of a query, for rows and for groups: what is selected, from where, in which order."""

from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.checked import Checked, Companion, Count, Operand, Ordering
from rankscope.tql.fields import SECTION, Entity
from rankscope_proto import names
from rankscope_query_api.tql_sql.columns import Column, of_count, of_operand, of_row
from rankscope_query_api.tql_sql.conditions import compile_condition
from rankscope_query_api.tql_sql.expressions import Source, all_of, call, column, number, source, step
from rankscope_query_api.tql_sql.ordering import SortKey, operand_order, row_order
from rankscope_query_api.tql_sql.parameters import Parameters

_IN_STEP_TRACE = names.SPAN_FLAGS["in_step_trace"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the page and the count are made of.

    Attributes:
        base: SELECT of nothing yet: the rows that match, or all groups.
        columns: What an item holds.
        keys: The total order.
    """

    base: exp.Select
    columns: tuple[Column, ...]
    keys: list[SortKey]


@dataclass
class Planner:
    """Plans one query within its project and run.

    Attributes:
        checked: The query.
        project: The only project to read.
        run: The only run to read; None: all of the project.
        parameters: The values bound so far.
    """

    checked: Checked
    project: str
    run: str | None
    parameters: Parameters = field(default_factory=Parameters)

    def plan(self) -> Plan:
        """The plan, with the order turned round where the query reads from the end."""
        plan = self._rows() if self.checked.group is None else self._groups(self.checked.group)
        if not self.checked.backwards:
            return plan
        return Plan(plan.base, plan.columns, [key.reversed() for key in plan.keys])

    def _rows(self) -> Plan:
        entity, select = self.checked.entity, self.checked.select
        if select is None:
            columns = of_row(entity, self.parameters)
        else:
            columns = tuple(of_operand(operand, self.parameters) for operand in select)
        keys = [key for ordering in self.checked.order for key in self._keys(ordering, {}, counted="")]
        return Plan(self._matching(), columns, [*keys, *row_order(entity)])

    def _keys(self, ordering: Ordering, sides: dict[Operand, Source], *, counted: str) -> list[SortKey]:
        """The keys of one `order by` value: a group's own, its count, or a row's."""
        if isinstance(ordering.operand, Count):
            return [SortKey(column(counted), "UInt64", ordering.descending)]
        side = sides.get(ordering.operand) or source(ordering.operand, self.parameters)
        return operand_order(side, descending=ordering.descending)

    def _groups(self, group: tuple[Operand, ...]) -> Plan:
        columns = [of_operand(operand, self.parameters, grouped=True) for operand in group]
        named = [alias(shown.value, f"c{at}") for at, shown in enumerate(columns)]
        counted = f"c{len(group)}"
        inner = self._matching().select(*named, alias(call("count"), counted))
        if group:
            inner = inner.group_by(*(exp.column(f"c{at}") for at in range(len(group))))
        sides = {operand: self._grouped(operand, f"c{at}") for at, operand in enumerate(group)}
        keys = [key for ordering in self.checked.order for key in self._keys(ordering, sides, counted=counted)]
        keys += [key for side in sides.values() for key in operand_order(side, descending=False)]
        shown = tuple(Column(known.name, column(f"c{at}"), known.write) for at, known in enumerate(columns))
        base = exp.select().from_(inner.subquery("groups"))
        return Plan(base, (*shown, of_count(column(counted))), keys or [SortKey(column(counted), "UInt64")])

    def _grouped(self, operand: Operand, name: str) -> Source:
        """A group's value as a source: NULL where it is the group of rows without one."""
        side = source(operand, self.parameters)
        missing = side.present is not None
        present = call("isNotNull", column(name)) if missing else None
        return Source(column(name), present, nullable=missing, absent=None, is_float=side.is_float, table=side.table)

    def _matching(self) -> exp.Select:
        """The rows of the query's entity that fulfil its condition."""
        checked = self.checked
        parts = [compile_condition(checked.condition, self.parameters)]
        if checked.companion is not None:
            if checked.entity is Entity.SPAN:
                parts.append(_in_step_trace())
            joined = exp.Tuple(expressions=_join_keys())
            parts.append(exp.In(this=joined, query=self._companions(checked.companion).subquery()))
        return self._from(checked.entity, parts)

    def _companions(self, companion: Companion) -> exp.Select:
        """(run, launch, rank, step) of the other entity's rows that fulfil their condition."""
        parts = [exp.NEQ(this=step(), expression=number(-1)), compile_condition(companion.condition, self.parameters)]
        if companion.entity is Entity.SPAN:
            parts.append(_in_step_trace())
        return self._from(companion.entity, parts).select(*_join_keys())

    def _from(self, entity: Entity, parts: list[Expr]) -> exp.Select:
        scope: list[Expr] = [self._equals("project", "project", value=self.project)]
        if self.run is not None:
            scope.append(self._equals("run_id", "run", value=self.run))
        table = exp.to_table(SECTION[entity].table)
        return exp.select().from_(table).where(all_of([*scope, *parts]), copy=False)

    def _equals(self, name: str, parameter: str, *, value: str) -> Expr:
        return exp.EQ(this=exp.column(name), expression=self.parameters.named(parameter, value, table="String"))


def alias(value: Expr, name: str) -> Expr:
    """The expression under a name of the compiler's own."""
    return exp.alias_(value.copy(), name)


def _join_keys() -> list[Expr]:
    return [exp.column("run_id"), exp.column("launch_id"), exp.column("rank"), step()]


def _in_step_trace() -> Expr:
    bit = call("bitAnd", exp.column("flags"), number(_IN_STEP_TRACE))
    return exp.NEQ(this=bit, expression=number(0))
