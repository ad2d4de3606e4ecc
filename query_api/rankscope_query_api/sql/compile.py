"""A text and its values to what is sent: our own text, in which nothing of a user's stands but names and numbers.

Texts in the statement become parameters; views become WITH parts that read one project (and one run); whatever a
statement names itself gets a prefix, so that it can never stand for something of ours, or of the store's.

>>> compile_statement("SELECT count() FROM spans WHERE name = 'step'", project="default").parameters["s0"]
'step'
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope_query_api.errors import InvalidQueryError
from rankscope_query_api.sql.allowed import FUNCTION_NODES, WORDS
from rankscope_query_api.sql.check import Checker, Names
from rankscope_query_api.sql.functions import BY_LOWER_CASE
from rankscope_query_api.sql.guard import check_text
from rankscope_query_api.sql.parameters import Bound, bound_values
from rankscope_query_api.sql.reading import Kept, parsed
from rankscope_query_api.sql.views import VIEWS

_SPACE_IN_PLACEHOLDER = re.compile(r"\{(\w+): ")

_OWN = "u_"
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement ready to be sent.

    Attributes:
        sql: Its text; every value is a `{name:Type}` placeholder.
        parameters: The values.
        titles: Names of columns that the text calls otherwise, by the text's name.
        sections: Whose rows it reads, in order of their first mention; none: it reads none.
    """

    sql: str
    parameters: dict[str, Bound]
    titles: Mapping[str, str]
    sections: tuple[str, ...]

    def title(self, name: str) -> str:
        """What a column of the answer is called for the one who asked."""
        return self.titles.get(name, name.removeprefix(_OWN) if "." in name else name)


def compile_statement(
    text: str,
    *,
    project: str,
    run: str | None = None,
    given: Mapping[str, Bound] | None = None,
    most_rows: int = 1_000,
) -> Statement:
    """What is sent to the store for a statement.

    Args:
        text: One SELECT over the views.
        project: The only project that is read.
        run: The only run that is read; None: all of the project.
        given: Values of its parameters.
        most_rows: Rows that are brought back at most.

    Raises:
        InvalidQueryError: The text is no statement that is allowed; the position says where.
        InvalidRequestError: A parameter is missing, unused or not of its type.
    """
    tree = parsed(text)
    names = Checker(text, tree).names()
    values = bound_values(names.bound, given or {})
    writer = _Writer(names, values)
    try:
        written = writer.text(tree, most_rows)
    except RecursionError:
        # As `1 BETWEEN 1 AND 1 BETWEEN 1 AND 1 …`: each stands inside the next, and none in brackets.
        raise InvalidQueryError(
            "the statement has parts too deep inside one another", hint="name some with WITH", code="too_deep"
        ) from None
    sql = _with_views(written, names.views, of_run=run is not None)
    check_text(sql, of_run=run is not None)
    bound: dict[str, Bound] = {f"{_OWN}{name}": value for name, value in values.items()} | writer.texts
    if names.views:
        bound |= {"project": project} | ({} if run is None else {"run": run})
    sections = tuple(dict.fromkeys(VIEWS[view].section.name for view in names.views))
    return Statement(sql, bound, writer.titles, sections)


def _with_views(written: str, views: tuple[str, ...], *, of_run: bool) -> str:
    if not views:
        return written
    heads = ", ".join(f"rs_{view} AS ({VIEWS[view].select(of_run=of_run)})" for view in views)
    return f"WITH {heads}, {written[5:]}" if written.startswith("WITH ") else f"WITH {heads} {written}"


class _Writer:
    """Turns a checked tree into text.

    Args:
        names: What its names stand for.
        values: Values of its parameters.
    """

    def __init__(self, names: Names, values: Mapping[str, Bound]) -> None:
        self._names = names
        self._values = values
        self.texts: dict[str, str] = {}
        self.titles: dict[str, str] = {}

    def text(self, tree: Expr, most_rows: int) -> str:
        """The statement without its views; the tree is used up.

        Raises:
            InvalidQueryError: A parameter of LIMIT or OFFSET is none of their numbers.
        """
        for cut in tree.find_all(exp.Limit, exp.Offset):
            self._count(cut.args["expression"])
        self._title(tree)
        whole = self._limited(tree, most_rows)
        for node in list(whole.walk()):
            write = _WRITES.get(type(node))
            if write is not None:
                write(self, node)
        written = whole.sql(dialect=Kept, comments=False, normalize_functions=False)
        return _SPACE_IN_PLACEHOLDER.sub(r"{\1:", written)

    def _title(self, tree: Expr) -> None:
        """Gives each nameless column of the answer a name, and remembers what it was called in the text."""
        first = tree
        while not isinstance(first, exp.Select):
            first = first.this
        for at, shown in enumerate(first.expressions):
            if not isinstance(shown, exp.Alias | exp.Column | exp.Star):
                name = f"rs_c{at}"
                self.titles[name] = shown.sql(dialect=Kept, comments=False)[:_SHOWN_CHARACTERS]
                first.expressions[at].replace(exp.Alias(this=shown.copy(), alias=exp.to_identifier(name)))

    def _limited(self, tree: Expr, most_rows: int) -> Expr:
        """The tree with at most so many rows and one more, by which a longer answer is known.

        What reads nothing is read from itself: ClickHouse holds a SELECT without FROM to no limit of time or size.
        """
        most = exp.Literal.number(most_rows + 1)
        if isinstance(tree, exp.Select) and tree.args.get("from_") is not None:
            limit = tree.args.get("limit")
            if limit is None:
                return tree.limit(most, copy=False)
            if not limit.args.get("expressions"):
                is_less = self._count(limit.args["expression"]) <= most_rows
                return tree if is_less else tree.limit(most, copy=False)
        inner = tree.this if isinstance(tree, exp.Subquery) else tree
        return exp.select("*").from_(exp.Subquery(this=inner)).limit(most)

    def _count(self, node: Expr) -> int:
        if isinstance(node, exp.Literal):
            return int(node.this)
        name = node.this.name
        asked = self._values[name]
        # Of a negative one ClickHouse gives as many rows from the end, however many may be brought back.
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
            message = f"LIMIT and OFFSET are whole numbers from 0 on, and {name} is {asked!r}"
            raise InvalidQueryError(message, hint=f"declare it as {{{name}:UInt32}}")
        return asked

    def write_identifier(self, node: Expr) -> None:
        """Every name is quoted: none is a word of the language."""
        node.set("quoted", True)

    def write_table(self, node: Expr) -> None:
        """A view by the name of its WITH part; a name of the statement's own with its prefix."""
        name = node.name
        if name in self._names.shared:
            node.this.set("this", f"{_OWN}{name}")
        else:
            node.set("this", exp.to_identifier(f"rs_{name}"))
        if node.args.get("alias") is None:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(f"{_OWN}{name}", quoted=True)))

    def write_table_alias(self, node: Expr) -> None:
        """A name that the statement gives a table, with its prefix."""
        node.this.set("this", f"{_OWN}{node.this.this}")

    def write_column(self, node: Expr) -> None:
        """The table before the dot with its prefix."""
        table = node.args.get("table")
        if isinstance(table, exp.Identifier):
            table.set("this", f"{_OWN}{table.this}")

    def write_literal(self, node: Expr) -> None:
        """A text becomes a parameter."""
        if isinstance(node.parent, exp.Interval):
            node.replace(exp.Literal.number(str(int(node.this))))
        elif node.args.get("is_string"):
            name = f"s{len(self.texts)}"
            self.texts[name] = str(node.this)
            node.replace(exp.Placeholder(this=exp.var(name), kind=exp.DataType.build("String", dialect="clickhouse")))

    def write_placeholder(self, node: Expr) -> None:
        """A parameter with its prefix."""
        node.set("this", exp.var(f"{_OWN}{node.this.name}"))

    def write_function(self, node: Expr) -> None:
        """A function as ClickHouse spells it."""
        node.set("this", BY_LOWER_CASE[node.this.lower()])

    def write_words(self, node: Expr) -> None:
        """Words of the language in capitals."""
        for name, value in node.args.items():
            if (type(node), name) in WORDS and isinstance(value, str):
                node.set(name, value.upper())


_WRITES: dict[type[Expr], Callable[[_Writer, Expr], None]] = {
    exp.Identifier: _Writer.write_identifier,
    exp.Table: _Writer.write_table,
    exp.TableAlias: _Writer.write_table_alias,
    exp.Column: _Writer.write_column,
    exp.Literal: _Writer.write_literal,
    exp.Placeholder: _Writer.write_placeholder,
    **dict.fromkeys(FUNCTION_NODES, _Writer.write_function),
    **dict.fromkeys((exp.Join, exp.Window, exp.WindowSpec), _Writer.write_words),
}
