"""Where a process's spool lies when the data folder is no place for one."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope import _spooling
from rankscope._plaintext import is_loopback
from rankscope._settings import Settings
from rankscope._spooling import MEMORY_BYTES, find_root, make_spool
from rankscope.errors import ConfigError
from rankscope.spool import SpoolError, SpoolWriter
from tests.agent.test_sealing import WHO


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder on NFS, and a temporary folder in memory, as far as the mount table says."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    table = tmp_path / "mountinfo"
    table.write_text(
        f"1 0 0:1 / {tmp_path / 'home'} rw - nfs4 server:/home rw\n2 0 0:2 / {temporary} rw - tmpfs tmpfs rw\n"
    )
    monkeypatch.setattr(_spooling, "MOUNTS", table)
    return tmp_path / "home"


def test_a_home_on_a_network_makes_way_for_the_temporary_folder_and_says_that_it_is_memory(home: Path) -> None:
    found = find_root(Settings(home))

    assert found.settings.spool_root == home.parent / "temporary" / f"rankscope-{os.getuid()}" / "spool"
    assert "is on nfs4" in found.warning
    assert f"batches lie in {found.settings.spool_root}, in memory, 256 MiB a process at most" in found.warning


def test_a_folder_that_was_named_is_refused_with_the_reason(home: Path) -> None:
    with pytest.raises(ConfigError, match="is on nfs4"):
        find_root(Settings(home, spool=home / "spool"))

    assert find_root(Settings(home, spool=home / "spool", spool_any_fs=True)).warning == ""


def test_nowhere_to_go_at_all_is_an_error_that_names_the_setting(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.parent / "temporary" / f"rankscope-{os.getuid()}").write_text("in the way")

    with pytest.raises(SpoolError, match="RANKSCOPE_SPOOL"):
        find_root(Settings(home))


def test_a_spool_in_memory_has_a_bound_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = noted_bounds(monkeypatch)

    make_spool(find_root(Settings(home, spool_any_fs=False)).settings, WHO).close()

    (bound,) = bounds
    assert bound is not None
    assert bound <= MEMORY_BYTES


@pytest.mark.parametrize(
    ("said", "living", "parts"),
    [({"LOCAL_WORLD_SIZE": "8"}, 0, 8), ({}, 0, 1), ({}, 3, 4), ({"LOCAL_WORLD_SIZE": "2"}, 3, 4)],
)
def test_the_processes_of_a_node_share_what_is_free(
    said: dict[str, str], living: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=10 * 2**30)

    monkeypatch.setattr("shutil.disk_usage", usage)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    whos = [replace(WHO, incarnation=bytes([number]) * 16) for number in range(living + 1)]
    settings = Settings(tmp_path, spool=tmp_path, spool_any_fs=True)
    before = [make_spool(settings, who) for who in whos[:-1]]

    bounds = noted_bounds(monkeypatch)
    spool = make_spool(settings, whos[-1])

    assert bounds == [2 * 2**30 // parts]
    for one in [*before, spool]:
        one.close()


def noted_bounds(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The bounds of the spools that are made from now on."""
    bounds: list[int | None] = []
    create = SpoolWriter.create

    def noted(*arguments: object, max_bytes: int | None = None, **more: object) -> SpoolWriter:
        bounds.append(max_bytes)
        return create(*arguments, max_bytes=max_bytes, **more)  # pyright: ignore[reportArgumentType]  # as they came

    monkeypatch.setattr(SpoolWriter, "create", noted)
    return bounds


@pytest.mark.parametrize(
    ("endpoint", "is_own"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("https://localhost:1", True),
        ("10.0.0.1:1", False),
        ("localhost.example:1", False),
    ],
)
def test_only_what_surely_is_this_machine_counts_as_such(endpoint: str, is_own: bool) -> None:
    assert is_loopback(endpoint) is is_own
