"""Views of `landing` that throw for a while, as one with a fault of ours would."""

from collections.abc import Generator
from contextlib import contextmanager

from clickhouse_connect.driver.client import Client

HARMLESS = "header_project AS project"
THROWS = "if(throwIf(1, 'broken by a test') = 0, header_project, '') AS project"


@contextmanager
def broken_view(client: Client, table: str) -> Generator[None]:
    """Inside the block the view that fills a table throws on every row of it."""
    view = f"{table}_from_landing"
    where = "FROM system.tables WHERE database = currentDatabase() AND name = {view:String}"
    ((query,),) = client.query(f"SELECT as_select {where}", parameters={"view": view}).result_rows
    assert HARMLESS in query, query
    _alter(client, view, query.replace(HARMLESS, THROWS, 1))
    try:
        yield
    finally:
        _alter(client, view, query)


def _alter(client: Client, view: str, query: str) -> None:
    """Gives a view another query, and its tokens back: see `rankscope_ingest.migrate`."""
    client.command(f"ALTER TABLE {view} MODIFY QUERY {query}")
    client.command(f"RENAME TABLE {view} TO {view}_aside, {view}_aside TO {view}")
