"""One word per idea, nothing unfinished, nothing of the machine it was written on."""

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.house.tree import functions_of, python_files, source_files, syntax_of, text_of, tracked_files

THIS = "tests/house/test_words.py"
VAGUE_MODULES = {"base", "common", "core", "helper", "helpers", "misc", "shared", "util", "utils"}
VAGUE_CLASS = re.compile(r"(Manager|Helper|Handler|Util|Utils|Base|Impl|[A-Za-z]\d)$")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|pragma: no cover")
SILENCED = re.compile(r"#\s*(noqa|type: ignore|pyright: ignore)(?![:\[(])")
OF_THIS_MACHINE = re.compile(r"(?<![\w.])/(home|Users|root|work)/")
SLEEPS = {"time.sleep", "asyncio.sleep"}


def text_files() -> Iterator[tuple[str, str]]:
    for name in tracked_files():
        if name not in {THIS, "LICENSE"} and "_pb2" not in name:
            yield name, text_of(name)


def places(pattern: re.Pattern[str]) -> str:
    """The lines that match, one below the other."""
    return "\n".join(
        f"{name}:{number}: {line.strip()}"
        for name, text in text_files()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    )


def test_nothing_is_left_unfinished() -> None:
    assert not places(UNFINISHED)


def test_every_silenced_check_names_its_rule() -> None:
    assert not places(SILENCED)


def test_no_path_of_a_developers_machine_is_written_down() -> None:
    assert not places(OF_THIS_MACHINE)


def test_no_module_is_named_for_being_shared() -> None:
    vague = [name for name in source_files() if PurePosixPath(name).stem.strip("_") in VAGUE_MODULES]

    assert not vague, "\n".join(vague)


def test_no_class_is_named_for_nothing() -> None:
    vague = [
        f"{name}:{node.lineno} {node.name}"
        for name in source_files()
        for node in ast.walk(syntax_of(name))
        if isinstance(node, ast.ClassDef) and VAGUE_CLASS.search(node.name)
    ]

    assert not vague, "\n".join(vague)


def test_every_module_says_why_it_exists() -> None:
    silent = [name for name in python_files() if text_of(name).strip() and not ast.get_docstring(syntax_of(name))]

    assert not silent, "\n".join(silent)


def test_no_source_asks_hasattr_where_a_type_would_answer() -> None:
    games = [
        f"{name}:{node.lineno}"
        for name in source_files()
        for node in ast.walk(syntax_of(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr"
    ]

    assert not games, "\n".join(games)


def test_no_test_waits_on_the_clock() -> None:
    # `await asyncio.sleep(0)` gives way to others and waits for nothing.
    sleeping = [
        f"{name}:{call.lineno}"
        for name in python_files(under=("tests/",))
        for function in functions_of(name)
        if function.name.startswith("test_")
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in SLEEPS
        if ast.unparse(call.args[0]) != "0"
    ]

    assert not sleeping, "\n".join(sleeping)
