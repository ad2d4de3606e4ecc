"""No input reads a file, opens a socket, changes a setting, or reads what is not a view of the asking project.

10,000 statements are made and looked at here; `pytest -m slow` looks at twenty times as many. What is let through is
read again by sqlglot's own parser, which shares nothing with what let it through but the grammar; some of it, and every
attack as it was written, is sent to services, one of them with chDB in its process, where `file()` would work.
"""

import itertools
from collections.abc import Iterator

import httpx
import pytest
import sqlglot
from sqlglot import exp

from rankscope_query_api.errors import InvalidQueryError, InvalidRequestError
from rankscope_query_api.sql.compile import Statement, compile_statement
from rankscope_query_api.sql.views import VIEWS
from tests.query_api.sql.canary import TOKEN, Canary
from tests.query_api.sql.generator import ATTACKS, HONEST, statements
from tests.query_api.sql.sending import send

HEADS = {name: f"rs_{name} AS ({view.select(of_run=False)})" for name, view in VIEWS.items()}
BLOCKS = 4
BLOCK = 2_500
SENT = 60
"""Of the statements that are let through, so many are sent."""


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    """The file and the port."""
    made = Canary(tmp_path_factory.mktemp("canary"))
    yield made
    made.close()


def compiled(query: str) -> Statement | None:
    """The statement; None where it is refused. Anything else it raises is a fault."""
    try:
        return compile_statement(query, project="default")
    except (InvalidQueryError, InvalidRequestError):
        return None


def assert_harmless(statement: Statement) -> None:
    """Only the views that are named are read, each as it is written in the code, and no text stands elsewhere."""
    rest = statement.sql
    for view, head in HEADS.items():
        assert rest.count(head) <= 1
        rest = rest.replace(head, f"rs_{view} AS (SELECT 1)")
    tree = sqlglot.parse_one(rest, dialect="clickhouse", error_level=sqlglot.ErrorLevel.IGNORE)
    given = {cte.alias for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        assert isinstance(table.this, exp.Identifier)
        assert table.name in given
        assert not table.db
        assert table.name.startswith(("u_", "rs_"))
    assert not [literal for literal in tree.find_all(exp.Literal) if literal.is_string and not literal.this.isdecimal()]
    assert not {"settings", "format", "into", "sample", "prewhere"} & {
        name for select in tree.find_all(exp.Select) for name, value in select.args.items() if value
    }
    assert statement.parameters.get("project", "default") == "default"


@pytest.mark.parametrize("block", range(BLOCKS))
def test_of_ten_thousand_statements_none_is_sent_that_reads_more_than_it_may(block: int, canary: Canary) -> None:
    look_at(range(block * BLOCK, (block + 1) * BLOCK), canary)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_of_two_hundred_thousand_statements_none_is_sent_that_reads_more_than_it_may(canary: Canary) -> None:
    look_at(range(BLOCKS * BLOCK, BLOCKS * BLOCK + 200_000), canary)


def look_at(seeds: range, canary: Canary) -> None:
    let_through = 0
    for seed, query in zip(seeds, statements(seeds, path=str(canary.path), port=canary.port), strict=True):
        statement = compiled(query)
        if statement is None:
            continue
        let_through += 1
        try:
            assert_harmless(statement)
        except AssertionError as error:
            raise AssertionError(f"statement {seed}: {query!r} became {statement.sql!r}") from error
    assert let_through > len(seeds) // 20, "the generator makes nothing that is worth a look"


def test_every_honest_statement_is_let_through() -> None:
    for query in HONEST:
        statement = compiled(query)

        assert statement is not None
        assert_harmless(statement)


async def test_no_attack_reads_the_file_dials_the_port_or_shows_the_other_project(
    api: httpx.AsyncClient, canary: Canary
) -> None:
    for attack in ATTACKS:
        query = attack.format(path=canary.path, port=canary.port)

        answer = await send(api, query, limit=1000)

        shown = answer.text.replace(str(canary.path), "")
        assert answer.status_code in (200, 400, 422), (query, answer.text)
        assert not {TOKEN, "secret"} & set(shown.replace('"', " ").split()), query
    assert (canary.dialled, canary.written.exists()) == (0, False)


async def test_what_is_let_through_is_answered_or_refused_and_shows_nothing_of_the_other_project(
    api: httpx.AsyncClient, canary: Canary
) -> None:
    made = statements(range(50_000, 60_000), path=str(canary.path), port=canary.port)
    let_through = (query for query in dict.fromkeys(made) if query not in HONEST and compiled(query) is not None)

    for query in itertools.islice(let_through, SENT):
        answer = await send(api, query, limit=1000)

        assert answer.status_code in (200, 400, 422), (query, answer.text)
        assert "secret" not in answer.text.replace(query, ""), query
    assert (canary.dialled, canary.written.exists()) == (0, False)


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
async def test_a_setting_stays_as_it_is_whatever_was_asked(api: httpx.AsyncClient, form: str) -> None:
    for query in ("SET readonly = 0", "SELECT 1 SETTINGS readonly = 0", "SELECT 1; SET max_execution_time = 0"):
        assert (await send(api, query, format=form)).status_code == 400
    assert (await send(api, "SELECT 1 AS one", format=form)).status_code == 200
