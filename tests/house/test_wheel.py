"""What a user installs: four packages with their types and data, and nothing else of the repository."""

import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from tests.house.tree import ROOT, SOURCE_ROOTS, tracked_files


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    (wheel,) = Path(folder).glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_the_four_packages_and_its_metadata_only(contents: set[str]) -> None:
    tops = {PurePosixPath(name).parts[0] for name in contents}

    assert tops == {*SOURCE_ROOTS.values(), "rankscope-0.1.0.dist-info"}


def test_the_wheel_holds_every_file_of_the_packages(contents: set[str]) -> None:
    packaged = {
        name.removeprefix(f"{root}/")
        for root, package in SOURCE_ROOTS.items()
        for name in tracked_files()
        if name.startswith(f"{root}/{package}/")
    }

    assert packaged <= contents
