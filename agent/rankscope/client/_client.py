"""The client: where it reads, in which project, and what can be asked."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope import _discovery
from rankscope._home import data_folder
from rankscope.client._asking import Asking
from rankscope.client._result import Result
from rankscope.client._tree import TraceWalk, Tree, window_rows
from rankscope.tql.formatting import format_value
from rankscope.tql.nodes import Text
from rankscope.up import Access, Json, UpError, quoted
from rankscope.up import Client as Http

ARRIVAL_PATIENCE_S = 5.0
"""`finish` returns when every row is in the spool; from there it is in the store a second or two later."""

ROWS_A_PAGE = 1_000


class NoServerError(UpError):
    """No address was given, and no server runs on this machine that could be meant."""

    code = "no_server"


class NoTraceError(UpError):
    """No span of such a trace is stored."""

    code = "unknown_trace"


@dataclass(frozen=True, slots=True)
class Client:
    """Reads what was recorded. It holds no connection, so that there is nothing to close.

    Every method raises UnreachableError where nobody answers and RefusedError, or for queries QueryRefusedError, where
    the service refuses.

    Attributes:
        http: the query service.
        project: whose data is read; None: the key's only project, else the default.
    """

    http: Http
    project: str | None = None

    def runs(self) -> Result:
        """The runs of the project, the latest first."""
        return Result(lambda after: self._get("/runs", limit=ROWS_A_PAGE, after=after))

    def query(self, tql: str, *, run: str | None = None, page: int = ROWS_A_PAGE) -> Result:
        """The answer to a TQL query.

        Args:
            tql: the query, for example `tensor.nonfinite_count > 0 | first`.
            run: the run it is asked of; None: all of the project.
            page: rows to read at once, 1 to 10,000.
        """
        asking = Asking(self.http, self.project, run)
        return Result(lambda after: asking.tql(tql, limit=page, after=after))

    def sql(
        self, text: str, *, parameters: Mapping[str, object] | None = None, run: str | None = None, limit: int = 1_000
    ) -> Result:
        """The answer to one SELECT over the documented views.

        Args:
            text: the statement; `{name:Type}` in it stands for a parameter.
            parameters: the values of these, by name.
            run: the run it is asked of; None: all of the project.
            limit: most rows, 1 to 100,000; `truncated` says whether there were more.
        """
        asking, bound = Asking(self.http, self.project, run), parameters or {}
        return Result(
            lambda _after: asking.sql(text, parameters=bound, limit=limit),
            arrow=lambda: asking.sql_as("arrow", text, parameters=bound, limit=limit).content,
        )

    def explain(self, tql: str, *, run: str | None = None) -> Json:
        """What a TQL query becomes: its text, what its rows are, its SQL, what is joined."""
        return Asking(self.http, self.project, run).explain(tql)

    def trace(self, trace_id: str, *, run: str | None = None) -> Tree:
        """One trace as a tree of spans.

        Args:
            trace_id: its 32 hexadecimal digits.
            run: the run it is of; None: whichever of the project has it.

        Raises:
            NoTraceError: no run of the project has a span of it.
        """
        path = f"/runs/{quoted(run or self._run_of(trace_id))}/traces/{quoted(trace_id)}"

        def read(below: str, **parameters: str | int | None) -> Json:
            return self._get(path + below, **parameters)

        walk = TraceWalk(read)
        info = {name: value for name, value in walk.detail.items() if name not in {"items", "next"}}
        return Tree(info, walk.walk)

    def window(self, trace_id: str, span_id: str, *, around: int = 100, run: str | None = None) -> Tree:
        """A span of a trace of any size as a tree: its ancestors, the siblings on both sides, its first children.

        Args:
            trace_id: its 32 hexadecimal digits.
            span_id: the span's 16.
            around: most siblings on either side, and most children; 1 to 500.
            run: the run it is of; None: whichever of the project has it.

        Raises:
            NoTraceError: no run of the project has a span of the trace.
        """
        path = f"/runs/{quoted(run or self._run_of(trace_id))}/traces/{quoted(trace_id)}/window"
        found = self._get(path, span=span_id, around=around)
        rows = window_rows(found)
        info = {name: value for name, value in found.items() if name not in {"ancestors", "items", "children"}}
        return Tree(info, lambda: iter(rows))

    def step(self, run: str, step: int, *, rank: int | None = None, by: str | None = None) -> Tree:
        """One step as a tree: across ranks, a row for each logical place, or one rank's own spans.

        Args:
            run: its id.
            step: the step.
            rank: this rank's own spans.
            by: `rank`, `node` or an axis of the mesh (`mesh.dp`): each place has `groups`, too.
        """
        path = f"/runs/{quoted(run)}/steps/{step}/tree"
        first = self._get(path, rank=rank, by=by, limit=ROWS_A_PAGE)

        def walk() -> Iterator[Json]:
            page = first
            yield from page["items"]
            while page["next"]:
                page = self._get(path, rank=rank, by=by, limit=ROWS_A_PAGE, after=page["next"])
                yield from page["items"]

        return Tree({name: value for name, value in first.items() if name not in {"items", "next"}}, walk)

    def _run_of(self, trace_id: str) -> str:
        found = self.query(f"span.trace_id == {format_value(Text(trace_id))} | select run.id | first").rows
        if not found:
            message = f"no run of this project has a span of trace {trace_id!r}"
            raise NoTraceError(message, hint="look at the project, and at the id: a trace shows it")
        return str(found[0]["run_id"])

    def _get(self, path: str, **parameters: str | int | None) -> Json:
        return self.http.get(path, project=self.project, **parameters)


def connect(url: str | None = None, *, api_key: str | None = None, project: str | None = None) -> Client:
    """A client of a query service; nothing is asked yet.

    Args:
        url: `http://host:port`; None: RANKSCOPE_URL, else the server that runs in the data folder of this user.
        api_key: the key it asks with; None: RANKSCOPE_KEY, else none.
        project: whose data is read; None: RANKSCOPE_PROJECT, else the key's only project, else the default.

    Raises:
        BadUrlError: the URL cannot be one of a query service.
        ConfigError: the key has characters that no key has.
        NoServerError: no URL, and no server runs here.
    """
    given = {} if api_key is None else {"RANKSCOPE_KEY": api_key}
    access = Access.from_environ({**os.environ, **given})
    address = url or os.environ.get("RANKSCOPE_URL") or _running()
    return Client(
        Http(address, patience_s=ARRIVAL_PATIENCE_S, access=access),
        project or os.environ.get("RANKSCOPE_PROJECT") or None,
    )


def _running() -> str:
    folder = data_folder(os.environ).expanduser().absolute()
    found = _discovery.read(folder)
    if found is None:
        message = f"no URL was given, and no server runs in {folder}"
        raise NoServerError(message, hint="start one with `rankscope up`, or give connect() the URL of a query service")
    return found.query
