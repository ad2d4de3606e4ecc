"""The repository as git sees it, so that the rules hold on a clean clone and ignore what a build leaves."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SOURCE_ROOTS = {
    "agent": "rankscope",
    "ingest": "rankscope_ingest",
    "query_api": "rankscope_query_api",
    "proto": "rankscope_proto",
}
"""Source root -> the one package it holds."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def tracked_files() -> tuple[str, ...]:
    """Every path git tracks that is also on disk, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(sorted(name for name in listing.split("\0") if name and (ROOT / name).is_file()))


def python_files(*, under: tuple[str, ...] = ("",)) -> list[str]:
    """Our own Python files below the given prefixes; generated ones are not ours to judge."""
    return [name for name in tracked_files() if name.endswith(".py") and "_pb2" not in name and name.startswith(under)]


def source_files() -> list[str]:
    """The Python files of the four packages."""
    return python_files(under=tuple(f"{root}/" for root in SOURCE_ROOTS))


def text_of(name: str) -> str:
    """A tracked file's text."""
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def syntax_of(name: str) -> ast.Module:
    """A tracked Python file's syntax tree."""
    return ast.parse(text_of(name), filename=name)


def functions_of(name: str) -> Iterator[Function]:
    """Every function and method of a file, nested ones too."""
    for node in ast.walk(syntax_of(name)):
        if isinstance(node, Function):
            yield node
