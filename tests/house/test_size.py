"""How long things may be. The list of exceptions is empty, and stays so."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.house.tree import (
    Function,
    functions_of,
    python_files,
    source_files,
    syntax_of,
    text_of,
)

MAX_SOURCE_LINES = 400
MAX_TEST_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_NESTING = 3
MAX_PARAMETERS = 6
MAX_POSITIONAL = 2

Block = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.Match


def test_no_source_file_is_longer_than_400_lines_and_no_test_file_than_500() -> None:
    too_long = [
        f"{name}: {lines} lines"
        for name in python_files()
        if (lines := text_of(name).count("\n")) > (MAX_TEST_LINES if name.startswith("tests/") else MAX_SOURCE_LINES)
    ]

    assert not too_long, "\n".join(too_long)


def test_no_function_is_longer_than_60_lines() -> None:
    too_long = [
        f"{name}:{function.lineno} {function.name}: {length} lines"
        for name in python_files()
        for function in functions_of(name)
        if (length := (function.end_lineno or function.lineno) - function.lineno + 1) > MAX_FUNCTION_LINES
    ]

    assert not too_long, "\n".join(too_long)


def test_no_function_nests_deeper_than_three_blocks() -> None:
    too_deep = [
        f"{name}:{function.lineno} {function.name}: {depth} deep"
        for name in source_files()
        for function in functions_of(name)
        if (depth := nesting(function)) > MAX_NESTING
    ]

    assert not too_deep, "\n".join(too_deep)


def test_no_function_takes_more_than_six_parameters() -> None:
    too_many = [
        f"{name}:{function.lineno} {function.name}: {count} parameters"
        for name, function in own_functions()
        if (count := len(positional(function)) + len(function.args.kwonlyargs)) > MAX_PARAMETERS
    ]

    assert not too_many, "\n".join(too_many)


def test_all_parameters_after_the_second_are_keyword_only() -> None:
    # A function whose signature others fix (a hook, a callback, a route) says so: `/`, a dunder, a decorator.
    loose = [
        f"{name}:{function.lineno} {function.name}({', '.join(positional(function))})"
        for name, function in own_functions()
        if not function.args.posonlyargs and len(positional(function)) > MAX_POSITIONAL
    ]

    assert not loose, "\n".join(loose)


def own_functions() -> Iterator[tuple[str, Function]]:
    """The functions of the source whose signature is ours to choose."""
    commands = commands_of_tiers()
    for name in source_files():
        for function in functions_of(name):
            dunder = function.name.startswith("__") and function.name != "__init__"
            is_command = f"{'.'.join(PurePosixPath(name).with_suffix('').parts[-2:])}:{function.name}" in commands
            if not dunder and not is_command and not called_by_a_framework(function):
                yield name, function


def called_by_a_framework(function: Function) -> bool:
    """Whether a decorator with arguments (a route, a command) hands the function's parameters in by name."""
    return any(isinstance(decorator, ast.Call) for decorator in function.decorator_list)


def commands_of_tiers() -> set[str]:
    """The functions that the command line calls by their parameters' names, one an option, as `module:function`."""
    groups = tomllib.loads(text_of("pyproject.toml"))["project"]["entry-points"]
    return set(groups["rankscope.commands"].values())


def positional(function: Function) -> list[str]:
    """The parameters that may be passed by position, without self and cls."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return [name for name in names if name not in {"self", "cls"}]


def nesting(node: ast.AST, *, depth: int = 0) -> int:
    """How many blocks deep the deepest statement stands; `elif` is no level, a nested function starts anew."""
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and [child] == node.orelse and isinstance(child, ast.If)
        step = 1 if isinstance(child, Block) and not is_elif else 0
        deepest = max(deepest, nesting(child, depth=depth + step))
    return deepest


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f():\n    return 1", 0),
        ("def f():\n    if a:\n        b\n    elif c:\n        d\n    elif e:\n        f", 1),
        ("def f():\n    for a in b:\n        with c:\n            if d:\n                e", 3),
        ("def f():\n    if a:\n        def g():\n            if b:\n                c", 1),
    ],
)
def test_nesting_counts_blocks(source: str, expected: int) -> None:
    assert nesting(ast.parse(source).body[0]) == expected


def test_the_median_function_stays_near_ten_lines() -> None:
    lengths = sorted(
        (function.end_lineno or function.lineno) - function.lineno + 1
        for name in source_files()
        for function in functions_of(name)
    )

    median = lengths[len(lengths) // 2] if lengths else 0

    assert median <= 15
    assert all(syntax_of(name) for name in source_files())
