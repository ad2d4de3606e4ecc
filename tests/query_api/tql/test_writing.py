"""The SQL that is written here is sqlglot's own, to the letter."""

import pytest

from rankscope import tql
from rankscope_query_api.tql_sql import Compiled, compile_query, statement, writing
from tests.query_api.tql.corpus import VALID


@pytest.mark.parametrize("run", ["night", None])
def test_every_query_of_the_corpus_is_written_as_sqlglot_writes_it(
    run: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {query: compiled(query, run=run) for query in VALID}

    monkeypatch.setattr(statement, "text_of", writing.by_sqlglot)

    for query in VALID:
        by_sqlglot = compiled(query, run=run)
        assert (here[query].sql, here[query].count_sql) == (by_sqlglot.sql, by_sqlglot.count_sql)


def compiled(query: str, *, run: str | None) -> Compiled:
    """The SQL of a query."""
    return compile_query(tql.check(tql.parse(query)), project="default", run=run)
