"""Puts the commands together and turns every way they can end into an exit status and a message."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import typer

from rankscope.cli import (
    _agent,
    _captures,
    _check,
    _doctor,
    _explain,
    _hang,
    _keys,
    _profile,
    _read,
    _removal,
    _services,
    _sql,
    _stragglers,
    _summary,
    _tail,
    _trace,
    _traces,
    _up,
)
from rankscope.cli._app import app
from rankscope.cli._errors import FAILED, INTERRUPTED, USAGE, OutputLostError, WrongCallError, status_of
from rankscope.cli._output import say_error
from rankscope.errors import RankscopeError
from rankscope.up import UpError

COMMANDS = (
    *(_summary, _up, _agent, _read, _sql, _explain, _tail, _trace, _traces, _captures, _profile, _removal),
    *(_stragglers, _hang, _check, _doctor, _services, _keys),
)
"""The modules whose commands `app` has because they are imported."""

ORDER = (
    *(
        "up",
        "demo",
        "run",
        "agent",
        "drain",
        "wait",
        "query",
        "sql",
        "explain",
        "tail",
        "trace",
        "traces",
        "captures",
        "profile",
        "hits",
        "stragglers",
        "hang",
        "check",
        "runs",
        "rm",
        "doctor",
        "version",
    ),
    *_services.SERVICES,
    "keys",
)
"""The order in which help lists the commands; those that have commands of their own come last."""

TRUE_WORDS = frozenset({"1", "on", "t", "true", "y", "yes"})
"""What typer takes for "yes" in the environment variable of a switch."""

UsageError = cast("type[Exception]", typer.BadParameter.__base__)
"""Typer brings a click of its own since 0.26; in both, the error of a wrong call sits right above BadParameter."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what follows the program's name; None takes the process's own.

    Returns:
        The exit status, 0 to 5 or 130, as the package says.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words or os.environ.get("RANKSCOPE_JSON", "").strip().lower() in TRUE_WORDS
    # It warns of each argument that chDB has no use for, and the same code serves chDB and a cluster.
    logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)
    app.registered_commands.sort(key=lambda command: ORDER.index(command.name or ""))
    try:
        answer: object = app(words, prog_name="rankscope", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except UsageError as error:
        say_error(_usage_error(error), as_json=as_json)
        return USAGE
    except (RankscopeError, OSError) as error:
        return _failed(error, as_json=as_json)
    except BaseExceptionGroup as group:
        return _failed(_only_told(group), as_json=as_json)
    return answer if isinstance(answer, int) else 0


def _failed(error: RankscopeError | OSError, *, as_json: bool) -> int:
    """The exit status, with a line on stderr where that can still be written."""
    if isinstance(error, (OSError, OutputLostError)):
        _swallow_the_rest()
    if isinstance(error, BrokenPipeError):
        return FAILED
    told = error if isinstance(error, RankscopeError) else UpError(_os_words(error))
    with contextlib.suppress(OSError):
        say_error(told, as_json=as_json)
    return status_of(told)


def _os_words(error: OSError) -> str:
    words = error.strerror or str(error)
    return f"{error.filename}: {words}" if error.filename else words


def _usage_error(error: Exception) -> WrongCallError:
    context = cast("Any", error).ctx
    hint = f"`{context.command_path} --help` lists what there is" if context else ""
    return WrongCallError(cast("Any", error).format_message(), hint=hint)


def _only_told(group: BaseExceptionGroup[BaseException]) -> RankscopeError | OSError:
    """The first error of a tier's tasks; with a foreign one among them the group goes on: that is a fault of ours."""
    errors = list(_leaves(group))
    told = [error for error in errors if isinstance(error, (RankscopeError, OSError))]
    if len(told) == len(errors):
        return told[0]
    raise group


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
        yield from _leaves(inner)


def _swallow_the_rest() -> None:
    """Output that has nowhere to go (`| head`, a full disk): the interpreter's last flush must not complain."""
    if sys.stdout is None:
        return
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
