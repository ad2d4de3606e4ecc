"""Where things lie: a fixed top level, one package per source root, types shipped with all four."""

from pathlib import PurePosixPath

import pytest

from tests.house.tree import ROOT, SOURCE_ROOTS, tracked_files

TOP_LEVEL = {
    *("pyproject.toml", "proto", "agent", "ingest", "query_api", "deploy", "tests", "README.md"),
    *("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile"),
}


def test_the_top_level_holds_the_fixed_folders_papers_and_dotfiles_only() -> None:
    found = {PurePosixPath(name).parts[0] for name in tracked_files()}

    surprising = {name for name in found - TOP_LEVEL if not name.startswith(".")}

    assert not surprising, f"not a top-level name: {sorted(surprising)}"


def test_every_fixed_folder_and_paper_is_there() -> None:
    missing = {name for name in TOP_LEVEL if not (ROOT / name).exists()}

    assert not missing


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_a_source_root_holds_exactly_one_package(root: str) -> None:
    # Whatever else lay there would be importable everywhere; an __init__.py would make a twin package.
    below = [PurePosixPath(name).parts for name in tracked_files() if name.startswith(f"{root}/")]

    folders = {parts[1] for parts in below if len(parts) > 2}
    loose_python = [parts[1] for parts in below if len(parts) == 2 and parts[1].endswith(".py")]

    assert folders == {SOURCE_ROOTS[root]}
    assert not loose_python


@pytest.mark.parametrize(("root", "package"), SOURCE_ROOTS.items())
def test_every_package_ships_its_types(root: str, package: str) -> None:
    assert f"{root}/{package}/py.typed" in tracked_files()


def test_every_folder_with_python_is_a_package() -> None:
    # Two test files of one name stop mypy unless their folders are packages.
    names = set(tracked_files())
    folders = {PurePosixPath(name).parent for name in names if name.endswith(".py") and not name.startswith("deploy/")}

    bare = sorted(str(folder) for folder in folders if f"{folder}/__init__.py" not in names)

    assert not bare


def test_no_built_or_cached_file_is_tracked() -> None:
    suffixes = (".pyc", ".so", ".whl", ".egg-info", ".log", ".rdb", ".aof")

    assert not [name for name in tracked_files() if name.endswith(suffixes)]
