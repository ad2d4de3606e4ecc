"""The door to the store as one who asks has it: as a foreigner to the project, with the limits of a key."""

from collections.abc import Mapping, Sequence

from rankscope_query_api.clickhouse import ClickHouse, Selecting
from rankscope_query_api.errors import ForbiddenError
from rankscope_query_api.limits import Asker
from rankscope_query_api.values import Table, Value


class NobodysProject:
    """The door as a project that does not exist sees it, whatever project is asked for.

    Args:
        door: The door.
    """

    PROJECT = "/"
    """No project is called so: the gateway refuses a name with a slash."""

    def __init__(self, door: Selecting) -> None:
        self._door = door

    async def select(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """Runs one statement; see `ClickHouse.select`."""
        return await self._door.select(statement, self._own(parameters))

    async def erase(self, statements: Sequence[str], parameters: Mapping[str, Value]) -> None:
        """Runs statements that delete; see `ClickHouse.erase`."""
        await self._door.erase(statements, self._own(parameters))

    async def insert(self, body: bytes, *, token: str) -> None:
        """Refuses: batches name their project themselves.

        Raises:
            ForbiddenError: Always.
        """
        raise ForbiddenError(
            f"{token} ({len(body)} bytes) is not written into a project that is not the key's",
            hint="name one of the key's projects",
        )

    def _own(self, parameters: Mapping[str, Value]) -> Mapping[str, Value]:
        return {**parameters, "project": self.PROJECT} if "project" in parameters else parameters


class AskedBy:
    """The door as one who asks has it: with the limits of its key, and its share of the handles.

    Args:
        clickhouse: The door.
        asker: Who asks.
    """

    def __init__(self, clickhouse: ClickHouse, asker: Asker) -> None:
        self._clickhouse = clickhouse
        self._asker = asker

    async def select(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """Runs one statement; see `ClickHouse.select`."""
        return await self._clickhouse.select(statement, parameters, asker=self._asker)

    async def erase(self, statements: Sequence[str], parameters: Mapping[str, Value]) -> None:
        """Runs statements that delete; see `ClickHouse.erase`."""
        await self._clickhouse.erase(statements, parameters)

    async def insert(self, body: bytes, *, token: str) -> None:
        """Writes batches; see `ClickHouse.insert`."""
        await self._clickhouse.insert(body, token=token)
