"""The fault matrix in this folder's README is true: what it names exists, and what must be shown is."""

import ast
import re

import pytest

from tests.house.tree import python_files, syntax_of, text_of

README = "tests/system/README.md"
ROW = re.compile(r"^\| (F\d\d) \| (.+?) \| (.+?) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
MUST = {
    *(f"F{number:02}" for number in (*range(1, 10), 11, 12, *range(16, 19), *range(21, 26), 28)),
    *(f"F{number:02}" for number in (*range(30, 46), 48, 50, 51, *range(54, 57), *range(58, 61))),
}
"""The faults that the delivery promise cannot do without."""


def matrix() -> dict[str, str]:
    """Fault id -> how it is shown."""
    return {fault: shown for fault, _, shown in ROW.findall(text_of(README))}


def names_in(file: str) -> set[str]:
    return {node.name for node in ast.walk(syntax_of(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_matrix_has_every_fault_once() -> None:
    rows = [fault for fault, _, _ in ROW.findall(text_of(README))]

    assert rows == [f"F{number:02}" for number in range(1, 61)]


def test_every_test_that_the_matrix_names_exists() -> None:
    files = set(python_files(under=("tests/",)))

    unknown = [
        f"{fault}: {file}::{name}"
        for fault, shown in matrix().items()
        for file, name in NAMED.findall(shown)
        if file not in files or name not in names_in(file)
    ]

    assert not unknown, "\n".join(unknown)


@pytest.mark.parametrize("fault", sorted(MUST))
def test_a_fault_that_must_be_shown_has_a_test(fault: str) -> None:
    assert NAMED.search(matrix()[fault]), f"{fault}: {matrix()[fault]}"


def test_a_fault_without_a_test_is_planned_or_says_why_not() -> None:
    silent = [
        fault
        for fault, shown in matrix().items()
        if not NAMED.search(shown) and not re.match(r"(planned|not here): \w", shown)
    ]

    assert not silent
