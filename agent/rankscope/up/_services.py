"""The services are found by name, never imported: the base install has the command line without them."""

import asyncio
import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, cast

from rankscope.up._errors import MissingExtraError

Serve = Callable[[Mapping[str, str], asyncio.Event], Coroutine[Any, Any, None]]
"""Serves with settings under their environment names until the event is set; returns when all is put away."""


def require(what: str, *modules: str, extra: str) -> None:
    """Refuse `what` where one of the modules is not installed; looks, and imports nothing.

    Raises:
        MissingExtraError: the first one that is missing.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(what, extra=extra, missing=module)


@contextlib.contextmanager
def importing(what: str, *, extra: str) -> Generator[None]:
    """Turn a failed import of a foreign package inside the block into MissingExtraError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("rankscope"):
            raise  # ours are always there: this is a fault, and no package to install mends it
        raise MissingExtraError(what, extra=extra, missing=error.name) from error


def load_service(name: str) -> Serve:
    """The coroutine function of a service: `broker`, `gateway`, `writer` or `query-service`.

    Raises:
        MissingExtraError: the packages it needs are not installed.
    """
    with importing(f"rankscope {name}", extra="embedded,server"):
        return cast("Serve", _entry("rankscope.services", name).load())


def load_command(name: str) -> Callable[..., Any]:
    """The function behind a service's subcommand: `gateway`, `writer`, `query-service` or `migrate`.

    Raises:
        MissingExtraError: the packages it needs are not installed.
    """
    with importing(f"rankscope {name}", extra="server"):
        return cast("Callable[..., Any]", _entry("rankscope.commands", name).load())


def _entry(group: str, name: str) -> importlib.metadata.EntryPoint:
    (entry,) = importlib.metadata.entry_points(group=group, name=name)
    return entry
