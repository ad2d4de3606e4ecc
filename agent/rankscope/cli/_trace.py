"""`rankscope trace`: a step across ranks, one rank's own tree of it, or any trace by its id, drawn as a tree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rankscope.cli._app import app
from rankscope.cli._errors import NotThereError, WrongCallError
from rankscope.cli._one_trace import span_lines, trace_lines
from rankscope.cli._output import duration, plural, say, say_json, say_rest, say_warnings
from rankscope.cli._source import AsJson, Home, Project, RunArgument, Source, Url
from rankscope.cli._tree import NAME_WIDTH, branches, name_cell, rank_lines
from rankscope.client import TraceWalk
from rankscope.up import Client, Json, quoted

SPANS_SHOWN = 400
STEPS_A_PAGE = 10_000


@app.command("trace", short_help="A step across ranks, or any trace, as a tree.")
def trace(  # noqa: PLR0913 - one for each option
    run: RunArgument = None,
    step: Annotated[int | None, typer.Option(min=0, help="The step.", show_default="the last")] = None,
    rank: Annotated[
        int | None, typer.Option(min=0, help="This rank's own spans instead.", show_default="all ranks, merged")
    ] = None,
    trace_id: Annotated[
        str | None, typer.Option("--trace", help="A trace by its id (32 hex digits).", show_default="the step's")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Most rows of the tree.")] = SPANS_SHOWN,
    after: Annotated[
        str | None, typer.Option(help="Where the last page ended: its `next`.", show_default="the first page")
    ] = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Where the time of a step went, on which rank; or what a trace did.

    Example: rankscope trace demo-1 --step 30 --rank 2
    """
    if trace_id and (step is not None or rank is not None):
        raise WrongCallError("--trace names one trace: leave --step and --rank out")
    with Source(home, url, project).client() as client:
        page = PageAsked(limit, after)
        asked = Asked(client, project=project, run=run or latest_run(client, project), page=page)
        answer, lines = asked.trace(trace_id) if trace_id else asked.step(step, rank)
    if as_json:
        say_json(answer)
        return
    for line in lines:
        say(line)
    say_warnings(answer)
    say_rest(answer)


@dataclass(frozen=True, slots=True)
class PageAsked:
    """Which page of a tree: most rows of it, and where the one before ended."""

    limit: int
    after: str | None

    @property
    def begin(self) -> int:
        """Rows before the page, where this program walks the tree itself and counts them.

        Raises:
            WrongCallError: `after` is no `next` of such a page.
        """
        if self.after is None:
            return 0
        if not self.after.isdecimal():
            raise WrongCallError(f"--after {self.after!r} is no `next` of `rankscope trace --trace`")
        return int(self.after)


class Asked:
    """One run as the query service tells of it.

    Args:
        client: the query service.
        project: whose run it is; None: the default.
        run: its id.
        page: which part of a tree.
    """

    def __init__(self, client: Client, *, project: str | None, run: str, page: PageAsked) -> None:
        self._page = page
        self._client = client
        self._project = project
        self._run = run

    def step(self, step: int | None, rank: int | None) -> tuple[Json, list[str]]:
        """A step's tree and its drawing; `step` None is the last one."""
        number = self._last_step() if step is None else step
        answer = self._get(f"/steps/{number}/tree", rank=rank, limit=self._page.limit, after=self._page.after)
        return answer, merged_lines(answer) if rank is None else rank_tree_lines(answer)

    def trace(self, trace_id: str) -> tuple[Json, list[str]]:
        """A trace: its totals, its spans, a parent before its children, and their drawing."""
        begin = self._page.begin
        end = begin + self._page.limit

        def read(below: str, **parameters: str | int | None) -> Json:
            return self._get(f"/traces/{quoted(trace_id)}{below}", **parameters)

        tree = TraceWalk(read, first=end)
        items = tree.rows(begin, end)
        more = end < tree.total
        answer = {
            **tree.detail,
            "items": items,
            "total": tree.total,
            "returned": len(items),
            "truncated": more,
            "next": str(end) if more else None,
        }
        return answer, trace_lines(answer)

    def _last_step(self) -> int:
        page = self._get("/steps", limit=STEPS_A_PAGE)
        while page["next"]:
            page = self._get("/steps", limit=STEPS_A_PAGE, after=page["next"])
        if not page["items"]:
            raise NotThereError(f"run {self._run!r} has no step yet", hint="a training opens them with `run.step(i)`")
        return int(page["items"][-1]["step"])

    def _get(self, path: str, **parameters: str | int | None) -> Json:
        return self._client.get(f"/runs/{quoted(self._run)}{path}", project=self._project, **parameters)


def latest_run(client: Client, project: str | None) -> str:
    """The id of the run that began last.

    Raises:
        NotThereError: the project has none.
    """
    runs: Sequence[Mapping[str, Any]] = client.get("/runs", project=project, limit=1)["items"]
    if not runs:
        raise NotThereError(
            f"{f'project {project!r}' if project else 'the project'} has no run yet", hint="`rankscope demo` makes one"
        )
    return str(runs[0]["run_id"])


def merged_lines(tree: Mapping[str, Any]) -> list[str]:
    """A step across ranks: the ranks' bars, then a row for each logical place."""
    nodes: Sequence[Mapping[str, Any]] = tree["items"]
    missing: Sequence[int] = tree["missing_ranks"]
    head = f"run {tree['run_id']}  step {tree['step']}  {plural(len(tree['ranks']), 'rank')}"
    return [
        head + (f"  MISSING {', '.join(map(str, missing))}" if missing else ""),
        "",
        *rank_lines(tree["ranks"]),
        "",
        f"{'over ranks':<{NAME_WIDTH}}{'min':>10}{'median':>10}{'max':>10}  slowest",
        *(_merged_line(node, lead) for node, lead in zip(nodes, _leads(nodes), strict=True)),
    ]


def rank_tree_lines(tree: Mapping[str, Any]) -> list[str]:
    """One rank's own spans of a step."""
    return [f"run {tree['run_id']}  step {tree['step']}  rank {tree['rank']}", "", *span_lines(tree["items"])]


def _leads(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return branches([int(row["depth"]) for row in rows])


def _merged_line(node: Mapping[str, Any], lead: str) -> str:
    times = "".join(f"{duration(node[name]):>10}" for name in ("min_ns", "median_ns", "max_ns"))
    slowest = "" if node["slowest_rank"] is None else f"  rank {node['slowest_rank']}"
    missing: Sequence[int] = node["missing_ranks"]
    gone = f"  not on rank {', '.join(map(str, missing))}" if missing else ""
    return f"{name_cell(lead, node)}{times}{slowest}{gone}"
