"""The papers and the commands they promise."""

import os
import re
import subprocess
import sys
import tomllib

import rankscope
from tests.house.tree import ROOT, text_of, tracked_files

TARGETS = re.compile(r"^([a-z-]+):(.*)$", re.MULTILINE)


def test_every_make_target_says_what_it_is_for() -> None:
    rules = TARGETS.findall(text_of("Makefile"))

    assert {"install", "format", "lint", "types", "test", "proto", "up", "demo"} <= {name for name, _ in rules}
    assert not [name for name, rest in rules if "## " not in rest]


def test_the_command_of_ci_is_executable_and_runs_make_test() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert re.search(r"^make test$", text_of(".ci/run"), re.MULTILINE)


def test_every_make_command_in_a_paper_is_a_target() -> None:
    targets = {name for name, _ in TARGETS.findall(text_of("Makefile"))}
    papers = [name for name in tracked_files() if name.endswith(".md")]

    unknown = {
        f"{name}: make {word}"
        for name in papers
        for word in re.findall(r"(?:^|`)make ([a-z-]+)", text_of(name), re.MULTILINE)
        if word not in targets
    }

    assert not unknown


def test_no_paper_has_a_figure_left_to_fill_in() -> None:
    papers = [name for name in tracked_files() if name.endswith(".md")]

    assert not [name for name in papers if re.search(r"@[A-Z]+@", text_of(name))]


def test_the_changelog_knows_the_version() -> None:
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]

    assert f"## {version}" in text_of("CHANGELOG.md").replace("[", "").replace("]", "")
    assert rankscope.__version__ == version


def test_the_readme_is_what_a_package_index_shows() -> None:
    assert tomllib.loads(text_of("pyproject.toml"))["project"].get("readme") == "README.md"


def test_every_entry_point_can_be_loaded() -> None:
    program = (
        "import importlib.metadata as m; "
        "[e.load() for g in ('rankscope.services', 'rankscope.commands') for e in m.entry_points(group=g)]"
    )

    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_the_readme_links_only_to_what_is_there() -> None:
    missing = {
        f"{name}: {target}"
        for name in tracked_files()
        if name.endswith(".md")
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text_of(name))
        if not ((ROOT / name).parent / target).exists()
    }

    assert not missing


def test_make_gives_its_commands_a_home_where_there_is_none() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}

    home = subprocess.run(
        ["make", "--silent", "--eval", "show-home: ; @echo $$HOME", "show-home"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    ).stdout

    assert home == f"{ROOT}/build/home\n"
