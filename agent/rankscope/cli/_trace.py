"""`rankscope trace`: a step across ranks, one rank's own tree of it, or any trace by its id, drawn as a tree."""

from dataclasses import dataclass
from typing import Annotated

import typer

from rankscope.cli._app import app
from rankscope.cli._errors import NotThereError, WrongCallError
from rankscope.cli._one_trace import trace_lines
from rankscope.cli._output import say, say_json, say_rest, say_warnings
from rankscope.cli._source import AsJson, Home, Project, RunArgument, Source, Url
from rankscope.cli._step_tree import merged_lines, rank_tree_lines
from rankscope.cli._window import window_lines
from rankscope.client import TraceWalk
from rankscope.up import Client, Json, quoted

SPANS_SHOWN = 400
STEPS_A_PAGE = 10_000
AROUND = 20
"""Siblings on either side of a span, and children of it, that are drawn."""


@app.command("trace", short_help="A step across ranks, or any trace, as a tree.")
def trace(  # noqa: PLR0913 - one for each option
    run: RunArgument = None,
    step: Annotated[int | None, typer.Option(min=0, help="The step.", show_default="the last")] = None,
    rank: Annotated[
        int | None, typer.Option(min=0, help="This rank's own spans instead.", show_default="all ranks, merged")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Each place by rank, node or an axis of the mesh too, as mesh.dp.", show_default="no groups"),
    ] = None,
    trace_id: Annotated[
        str | None, typer.Option("--trace", help="A trace by its id (32 hex digits).", show_default="the step's")
    ] = None,
    around: Annotated[
        str | None,
        typer.Option(help="With --trace: a span by its id (16 hex digits), and what is around it.", show_default="all"),
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
    _refuse_mixed(trace_id, around, of_step=step is not None or rank is not None or by is not None)
    with Source(home, url, project).client() as client:
        page = PageAsked(limit, after)
        asked = Asked(client, project=project, run=run or latest_run(client, project), page=page)
        if trace_id:
            answer, lines = asked.window(trace_id, around) if around else asked.trace(trace_id)
        else:
            answer, lines = asked.step(step, rank, by=by)
    if as_json:
        say_json(answer)
        return
    for line in lines:
        say(line)
    say_warnings(answer)
    if not around:  # a window is no page: it says itself how much it shows
        say_rest(answer)


def _refuse_mixed(trace_id: str | None, around: str | None, *, of_step: bool) -> None:
    if trace_id and of_step:
        raise WrongCallError("--trace names one trace: leave --step, --rank and --by out")
    if around and not trace_id:
        raise WrongCallError("--around names a span of a trace: name that trace, too, by --trace")


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

    def step(self, step: int | None, rank: int | None, *, by: str | None = None) -> tuple[Json, list[str]]:
        """A step's tree and its drawing; `step` None is the last one."""
        number = self._last_step() if step is None else step
        answer = self._get(f"/steps/{number}/tree", rank=rank, by=by, limit=self._page.limit, after=self._page.after)
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

    def window(self, trace_id: str, span: str) -> tuple[Json, list[str]]:
        """A span, what it is part of, its siblings and its children, and their drawing."""
        around = min(self._page.limit, AROUND)
        answer = self._get(f"/traces/{quoted(trace_id)}/window", span=span, around=around)
        return answer, window_lines(answer)

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
    runs: list[Json] = client.get("/runs", project=project, limit=1)["items"]
    if not runs:
        raise NotThereError(
            f"{f'project {project!r}' if project else 'the project'} has no run yet", hint="`rankscope demo` makes one"
        )
    return str(runs[0]["run_id"])
