"""Asks a query service in TQL and SQL; an error keeps the text, so that it can point into it."""

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.client._refused import QueryRefusedError
from rankscope.up import Body, Client, Json, RefusedError


@dataclass(frozen=True, slots=True)
class Asking:
    """Whom queries are asked of, and about what.

    Every method raises QueryRefusedError where the text cannot be read or meant, a parameter does not fit or the run
    is unknown, and UnreachableError where nobody answers.

    Attributes:
        client: the query service.
        project: whose data; None: the key's only project, else the default.
        run: the run; None: all of the project.
    """

    client: Client
    project: str | None = None
    run: str | None = None

    def tql(self, text: str, *, limit: int | None = None, after: str | None = None) -> Json:
        """A page of the answer to a TQL query."""
        return self._post("/tql", text, more={"limit": limit, "after": after})

    def tql_as(self, form: str, text: str, *, limit: int | None = None, after: str | None = None) -> Body:
        """The same in another format, `csv` or `arrow`."""
        return self._fetch("/tql", text, more={"limit": limit, "after": after, "format": form})

    def explain(self, text: str) -> Json:
        """What a TQL query becomes."""
        return self._post("/tql/explain", text, more={})

    def sql(self, text: str, *, parameters: Mapping[str, object], limit: int) -> Json:
        """The answer to a SELECT."""
        return self._post("/sql", text, more={"parameters": dict(parameters), "limit": limit})

    def sql_as(self, form: str, text: str, *, parameters: Mapping[str, object], limit: int) -> Body:
        """The same in another format, `csv` or `arrow`."""
        return self._fetch("/sql", text, more={"parameters": dict(parameters), "limit": limit, "format": form})

    def _post(self, path: str, text: str, *, more: Mapping[str, object]) -> Json:
        try:
            return self.client.post(path, {"query": text, "run": self.run, **more}, project=self.project)
        except RefusedError as refused:
            raise QueryRefusedError(refused, text) from refused

    def _fetch(self, path: str, text: str, *, more: Mapping[str, object]) -> Body:
        try:
            return self.client.fetch(path, {"query": text, "run": self.run, **more}, project=self.project)
        except RefusedError as refused:
            raise QueryRefusedError(refused, text) from refused
