"""Where a reading command reads: a URL, the server that runs in the data folder, or the folder itself."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rankscope import _discovery
from rankscope._home import data_folder
from rankscope.client import ARRIVAL_PATIENCE_S
from rankscope.up import Access, Client, DataFolder, reading

Home = Annotated[
    Path | None,
    typer.Option(
        envvar="RANKSCOPE_HOME",
        help="The data folder.",
        show_default="XDG_DATA_HOME/rankscope, ~/.local/share/rankscope",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(envvar="RANKSCOPE_URL", help="A query service to ask.", show_default="what runs in the data folder"),
]
Project = Annotated[
    str | None,
    typer.Option(
        envvar="RANKSCOPE_PROJECT", help="The project to look in.", show_default="the key's only one, else default"
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", envvar="RANKSCOPE_JSON", help="Print one JSON document and nothing else.")
]


def named(run: str | None) -> str | None:
    """The run as it is, for an option or argument that names one.

    Raises:
        BadParameter: it is empty, as an unset variable of a shell is: that is no way to say "every run".
    """
    if run is not None and not run.strip():
        raise typer.BadParameter("a run's id is not empty")
    return run


RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", envvar="RANKSCOPE_RUN_ID", help="The run.", show_default="the latest", callback=named
    ),
]


@dataclass(frozen=True, slots=True)
class Source:
    """What the reading commands share: where to read and in which project."""

    home: Path | None
    url: str | None
    project: str | None

    @contextmanager
    def client(self) -> Generator[Client]:
        """A client of the query service this source means; patient with a server, for what was just accepted.

        Raises:
            FolderHeldError: the folder has an owner that does not serve it.
            MissingExtraError: nothing serves, and the embedded store is not installed.
            NothingKeptError: nothing serves, and the folder holds no data.
        """
        if self.url:
            yield Client(self.url, patience_s=ARRIVAL_PATIENCE_S, access=Access.from_environ(os.environ))
            return
        folder = DataFolder(chosen_folder(self.home))
        found = _discovery.read(folder.path)
        if found:
            yield Client(found.query, patience_s=ARRIVAL_PATIENCE_S, access=Access.from_environ(os.environ))
            return
        with reading(folder) as url:
            yield Client(url)


def chosen_folder(home: Path | None) -> Path:
    """The data folder as an absolute path: the option's, else the environment's, else the default."""
    return (home or data_folder(os.environ)).expanduser().absolute()
