"""The services are found by name, never imported: the base install has the command line without them."""

import asyncio
import importlib.metadata
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

from rankscope.up._errors import MissingExtraError

Serve = Callable[[Mapping[str, str], asyncio.Event], Coroutine[Any, Any, None]]
"""Serves with settings under their environment names until the event is set; returns when all is put away."""


def _load(group: str, name: str, *, extra: str) -> Any:
    """The object behind the entry point `name` of `group`.

    Raises:
        MissingExtraError: the packages it needs are not installed.
    """
    for entry in importlib.metadata.entry_points(group=group, name=name):
        try:
            return entry.load()
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("rankscope"):
                raise  # ours are always there: this is a fault, and no package to install mends it
            raise MissingExtraError(f"rankscope {name}", extra=extra, missing=error.name or str(error)) from error
    raise MissingExtraError(f"rankscope {name}", extra=extra, missing=f"{group}:{name}")


def load_service(name: str) -> Serve:
    """The coroutine function of a service: `broker`, `gateway`, `writer` or `query-service`.

    Raises:
        MissingExtraError: the packages it needs are not installed.
    """
    return cast("Serve", _load("rankscope.services", name, extra="embedded,server"))


def load_command(name: str) -> Callable[..., Any]:
    """The function behind a service's subcommand: `gateway`, `writer`, `query-service` or `migrate`.

    Raises:
        MissingExtraError: the packages it needs are not installed.
    """
    return cast("Callable[..., Any]", _load("rankscope.commands", name, extra="server"))
