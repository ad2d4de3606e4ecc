"""Migrated databases that tests use one after the other: to make one takes 0.8 s of CPU time, to empty one 0.04 s."""

from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.ground.stores import Store

SHAPE = "SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase() ORDER BY name"
FILLED = "SELECT DISTINCT table FROM system.parts WHERE database = currentDatabase() AND active"


@dataclass(frozen=True, slots=True)
class Made:
    """A database as it was when it was new.

    Attributes:
        store: The database.
        shape: Its objects and how each is made.
        filled: Tables that hold rows even so.
    """

    store: Store
    shape: list[tuple[str, str]]
    filled: frozenset[str]

    def emptied(self) -> bool:
        """Takes out what was put in; False: its objects are other ones, and it is of no use any more."""
        if shape_of(self.store) != self.shape:
            return False
        for table in filled_of(self.store) - self.filled:
            self.store.client.command(f"TRUNCATE TABLE {table}")  # the memory of what was inserted goes too
        return True


def shape_of(store: Store) -> list[tuple[str, str]]:
    """Every object of a database."""
    return [(str(name), str(query)) for name, query in store.client.query(SHAPE).result_rows]


def filled_of(store: Store) -> frozenset[str]:
    """The tables that hold rows."""
    return frozenset(str(table) for (table,) in store.client.query(FILLED).result_rows)


class Shelf:
    """Lends databases with every object, without a row; one comes back emptied, and one whose objects changed never.

    Args:
        migrate: Makes the objects in a new database.
    """

    def __init__(self, migrate: Callable[[Store], None]) -> None:
        self._migrate = migrate
        self._idle: dict[str, list[Made]] = defaultdict(list)

    @contextmanager
    def lent(self, server_url: str) -> Generator[Store]:
        """A database of a server, for one test.

        Args:
            server_url: Of ClickHouse's HTTP interface.
        """
        idle = self._idle[server_url]
        made = idle.pop() if idle else self._made(Store(server_url))
        yield made.store
        if made.emptied():
            idle.append(made)
        else:
            made.store.drop()

    def _made(self, store: Store) -> Made:
        self._migrate(store)
        return Made(store, shape_of(store), filled_of(store))

    def clear(self) -> None:
        """Removes all that is idle."""
        for idle in self._idle.values():
            for made in idle:
                made.store.drop()
            idle.clear()
