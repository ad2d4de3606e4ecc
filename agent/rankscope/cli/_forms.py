"""How a reading command writes its answer: a table for people, JSON, CSV or an Arrow stream for programs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli._errors import OutputLostError, WrongCallError
from rankscope.cli._output import plural, say_aside
from rankscope.up import Body

STDOUT = "-"

Csv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header and nothing else.")]
Arrow = Annotated[
    str | None,
    typer.Option("--arrow", metavar="FILE", help="Write an Arrow stream there; - is stdout.", show_default=""),
]


def form_of(*, as_json: bool, csv: bool, arrow: str | None) -> str:
    """The form that is asked for: `table`, `json`, `csv` or `arrow`.

    Raises:
        WrongCallError: more than one is.
    """
    asked = [form for form, is_asked in (("json", as_json), ("csv", csv), ("arrow", arrow is not None)) if is_asked]
    if len(asked) > 1:
        raise WrongCallError(f"--{asked[0]} and --{asked[1]} are two forms of one answer: name one")
    return asked[0] if asked else "table"


def write(body: Body, target: str | None) -> None:
    """An answer's bytes, to a file or to stdout; on stderr, that there are warnings, and more rows.

    Args:
        body: the answer.
        target: the file; None or `-`: stdout.

    Raises:
        OutputLostError: stdout is closed.
        OSError: the file, or stdout, cannot be written.
    """
    if target in {None, STDOUT}:
        if sys.stdout is None:
            raise OutputLostError("stdout is closed")
        sys.stdout.flush()
        sys.stdout.buffer.write(body.content)
        sys.stdout.buffer.flush()
    else:
        Path(target or "").write_bytes(body.content)
    if warnings := int(body.said.get("warnings", 0)):
        say_aside(f"{plural(warnings, 'warning')}: ask without --csv and --arrow to read them")
    if body.said.get("truncated") == "true":
        say_aside(_rest(body))


def _rest(body: Body) -> str:
    shown, total, cursor = (body.said.get(name) for name in ("returned", "total", "next"))
    further = f"the next page: --after {cursor}" if cursor else "raise --limit"
    return f"{shown} of {total} rows; {further}" if total else f"{shown} rows, and there are more: {further}"
