"""The public surface of `rankscope`: few names, written out, in order, each one there."""

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import rankscope
from tests.house.tree import ROOT, syntax_of

INIT = "agent/rankscope/__init__.py"
PUBLIC = {
    *("Run", "Span", "Step", "Trace", "__version__", "connect", "current_run", "errors", "finish"),
    *("init", "record", "testing", "tql", "wait", "watch"),
}
"""The names the package may ever export; one that nothing fills yet is not exported."""


def test_the_exported_names_are_written_out() -> None:
    assert exported()


def test_the_exported_names_are_in_order() -> None:
    assert exported() == sorted(exported(), key=str)


def test_nothing_is_exported_beyond_the_public_names() -> None:
    assert set(exported()) <= PUBLIC


def test_every_exported_name_is_there_and_has_a_docstring() -> None:
    for name in exported():
        value = getattr(rankscope, name)

        assert name == "__version__" or inspect.getdoc(value), name


def test_an_exported_class_calls_itself_by_its_public_name() -> None:
    for name in exported():
        value = getattr(rankscope, name)

        assert not inspect.isclass(value) or value.__module__ == "rankscope", name


def test_a_package_init_holds_imports_and_names_only() -> None:
    allowed = ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign | ast.Expr | ast.For

    body = [inner for node in syntax_of(INIT).body for inner in statements_in(node)]
    surprising = [ast.unparse(node) for node in body if not isinstance(node, allowed)]

    assert not surprising


def test_the_program_that_mypy_checks_also_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "tests/house/user_program.py"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "RANKSCOPE_UPLOAD_MODE": "disabled", "RANKSCOPE_HOME": str(tmp_path)},
    )

    assert done.returncode == 0, done.stderr


def statements_in(node: ast.stmt) -> Sequence[ast.stmt]:
    """A statement, or those of an `if TYPE_CHECKING`, which say what is imported to whom."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return [*node.body, *node.orelse]
    return [node]


def exported() -> list[str]:
    """`__all__` as a literal in the source: a type checker and a reader see the same list."""
    for node in syntax_of(INIT).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []
