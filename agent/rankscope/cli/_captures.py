"""`rankscope captures`: which tensor values a run has kept, and one of them as a file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli._app import app
from rankscope.cli._output import say, say_json, say_rest, say_warnings
from rankscope.cli._profile import RunNamed
from rankscope.cli._read import After
from rankscope.cli._source import AsJson, Home, Project, Source, Url
from rankscope.cli._table import say_table
from rankscope.up import Client, Parameter, quoted

COLUMNS = ("name", "role", "step", "rank", "dtype", "shape", "part", "bytes", "is_whole", "cause", "digest")


class Form(StrEnum):
    """How a file is written."""

    SAFETENSORS = "safetensors"
    NPZ = "npz"
    RAW = "raw"


@app.command("captures", short_help="Which tensor values were kept; one as a file.")
def captures(  # noqa: PLR0913 - one for each option
    run: RunNamed,
    digest: Annotated[
        str | None, typer.Argument(metavar="DIGEST", help="Write this content into a file.", show_default="list them")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Path of the tensor; * is any text, ? one character.")] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Optimizer step.")] = None,
    rank: Annotated[int | None, typer.Option(min=-1, help="Global rank.")] = None,
    role: Annotated[str | None, typer.Option(help="What the tensor is, such as weight or grad.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file.", show_default="DIGEST.FORMAT, here")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="How the file is written.")] = Form.SAFETENSORS,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Tensors to list.")] = 20,
    after: After = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Which tensors' values were kept, by a breakpoint or on demand; with a digest, that content as a file.

    Example: rankscope captures demo-1 --name 'head.*' --step 40
    """
    which: dict[str, Parameter] = {"name": name, "step": step, "rank": rank, "role": role, "project": project}
    address = f"/runs/{quoted(run)}/captures"
    with Source(home, url, project).client() as client:
        if digest is not None:
            file = out or Path(f"{digest}.{form}")
            size = _save(client, f"{address}/{quoted(digest)}", file=file, which={**which, "format": form})
            _say_file(file, size, as_json=as_json)
            return
        listed = client.get(address, **which, limit=limit, after=after)
    if as_json:
        say_json(listed)
        return
    say_table(listed["items"], COLUMNS, none="no tensor's values were kept")
    say_warnings(listed)
    say_rest(listed)


def _say_file(file: Path, size: int, *, as_json: bool) -> None:
    if as_json:
        say_json({"file": str(file), "bytes": size})
    else:
        say(str(file))


def _save(client: Client, path: str, *, file: Path, which: dict[str, Parameter]) -> int:
    """Write an answer into a file, which is there only once it is whole; how many bytes it has."""
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("wb") as opened:
            size = client.save(path, opened, **which)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return size
