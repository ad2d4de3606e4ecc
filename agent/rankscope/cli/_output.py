"""What people see: lines, carets, durations; what programs see: one JSON document."""

import json
import platform
import select
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from rankscope._version import __version__
from rankscope.cli._errors import OutputLostError, as_json, hint_of
from rankscope.client import QueryRefusedError, caret, printable
from rankscope.errors import RankscopeError

UNITS_NS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3))


def say(line: str = "") -> None:
    """Text on stdout, at once: what reads a pipe should not wait for a full buffer.

    Raises:
        BrokenPipeError: the reader is gone.
        OutputLostError: stdout cannot be written.
    """
    if sys.stdout is None:
        raise OutputLostError("stdout is closed")
    try:
        typer.echo(_printable_lines(line))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLostError(f"stdout cannot be written: {error.strerror or error}") from error


def say_json(document: object) -> None:
    """The one JSON document on stdout."""
    say(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def version_line() -> str:
    """The version of rankscope and of the Python that runs it."""
    return f"rankscope {__version__} (Python {platform.python_version()})"


def say_aside(line: str) -> None:
    """A remark on stderr, which no program reads as the answer."""
    typer.echo(_printable_lines(line), err=True)


def say_warnings(answer: Mapping[str, Any]) -> None:
    """What the service says a reader of its answer should know."""
    warnings: Sequence[str] = answer.get("warnings") or ()
    for warning in warnings:
        say_aside(f"warning: {warning}")


def await_reader(seconds: float) -> None:
    """Waits; where stdout is a pipe that nobody reads any more, that is noticed at once, and not with the next line.

    Raises:
        BrokenPipeError: the reader is gone.
    """
    reader = select.poll()
    if sys.stdout is not None:
        reader.register(sys.stdout.fileno(), 0)  # no event is asked for: that the other end is closed is told anyway
    if reader.poll(seconds * 1000):
        raise BrokenPipeError


def say_rest(answer: Mapping[str, Any]) -> None:
    """On stderr, that an answer goes on, and how to get its next page."""
    if answer["truncated"]:
        shown = plural(int(answer["returned"]), "row")
        say_aside(f"{shown} of {answer['total']}; the next page: --after {shlex.quote(str(answer['next']))}")


def say_error(error: RankscopeError, *, as_json: bool) -> None:
    """An error on stderr, as text or as one JSON document."""
    say_aside(_error_document(error) if as_json else _error_text(error))


def _error_document(error: RankscopeError) -> str:
    return json.dumps(as_json(error), ensure_ascii=False)


def _error_text(error: RankscopeError) -> str:
    if isinstance(error, QueryRefusedError):
        lines = [f"error: {error.message}", *caret(error.text, error.error)]
    else:
        lines = [f"error: {error}"]
    hint = hint_of(error)
    if hint:
        lines.append(f"hint: {hint}")
    return "\n".join(lines)


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def duration(ns: object) -> str:
    """A duration that JSON gives in ns, in the unit that reads best."""
    if ns is None:
        return "-"
    value = float(str(ns))
    for unit, size in UNITS_NS:
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} ns"


def plural(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
