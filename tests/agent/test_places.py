"""Which rank this is, and how ranks come to one run."""

import os
import uuid
from collections.abc import Mapping
from datetime import timedelta

import pytest

from rankscope._agree import agree, agree_through
from rankscope._identity import readable_id
from rankscope._rank import find_rank
from rankscope._settings import Settings
from rankscope.errors import ConfigError
from tests.ground.processes import free_port

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NNODES": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "77",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def settings(environ: Mapping[str, str]) -> Settings:
    return Settings.load({"RANKSCOPE_HOME": "/nonexistent", **environ})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1, 0, 1, "single")),
        (TORCHRUN, (5, 8, 1, 2, "torchrun")),
        (SLURM, (3, 4, 1, 2, "Slurm")),
        (SLURM | {"SLURM_JOB_NAME": "interactive"}, (0, 1, 0, 1, "single")),
        (OPEN_MPI, (1, 2, 1, 1, "Open MPI")),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, (1, 2, -1, None, "MVAPICH")),
        ({"PMI_RANK": "6", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}, (6, 8, -1, 2, "PMI")),
        ({"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2"}, (1, 2, -1, None, "LSF")),
        (TORCHRUN | {"RANKSCOPE_RANK": "0", "RANKSCOPE_WORLD_SIZE": "1"}, (0, 1, 1, 1, "RANKSCOPE_RANK")),
        (TORCHRUN | SLURM, (5, 8, 1, 2, "torchrun")),
    ],
)
def test_the_first_complete_source_wins(environ: dict[str, str], expected: tuple[object, ...]) -> None:
    place = find_rank(environ, settings(environ))

    assert (place.rank, place.world_size, place.local_rank, place.nodes, place.source) == expected
    assert not place.warning


def test_a_rank_without_a_local_rank_is_taken_with_a_warning() -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2"}

    place = find_rank(environ, settings(environ))

    assert (place.rank, place.world_size) == (1, 2)
    assert "count nodes" in place.warning


@pytest.mark.parametrize("names", [("RANKSCOPE_RANK", "RANKSCOPE_WORLD_SIZE"), ("RANK", "WORLD_SIZE")])
def test_a_rank_not_below_the_world_size_is_an_error(names: tuple[str, str]) -> None:
    environ = dict(zip(names, ("4", "4"), strict=True))

    with pytest.raises(ConfigError, match=r"rank 4 of a world of 4 .* at most 3"):
        find_rank(environ, settings(environ))


@pytest.mark.parametrize("name", ["RANKSCOPE_RANK", "RANKSCOPE_WORLD_SIZE"])
def test_half_an_explicit_rank_is_an_error(name: str) -> None:
    environ = {name: "1"}

    with pytest.raises(ConfigError, match="set both, or neither"):
        find_rank(environ, settings(environ))


class DictStore:
    """What torch's stores do, in a dict."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        if self.values.get(key, "") == expected:
            self.values[key] = desired
        return self.values[key].encode()


def test_ranks_agree_through_a_store_whoever_comes_first() -> None:
    store = DictStore()

    agreements = {agree_through(store, "0.0", run_id=None) for _ in range(4)}

    assert len(agreements) == 1


def test_a_restart_is_another_launch_of_the_same_run() -> None:
    store = DictStore()

    first, second = (agree_through(store, start, run_id=None) for start in ("0.0", "1.0"))

    assert first.run_id == second.run_id
    assert first.launch_id != second.launch_id


def test_a_second_run_of_the_same_processes_is_another_run() -> None:
    store = DictStore()

    first, second = (agree_through(store, start, run_id=None) for start in ("0.0", "0.1"))

    assert first.run_id != second.run_id


def test_on_one_node_the_launcher_is_what_ranks_have_in_common() -> None:
    environ = OPEN_MPI
    place = find_rank(environ, settings(environ))

    first, second = agree(place, environ), agree(place, environ)

    assert first == second
    assert agree(place, environ, ordinal=1) != first


def test_slurm_names_the_launch_over_several_nodes() -> None:
    place = find_rank(SLURM, settings(SLURM))

    assert agree(place, SLURM) == agree(place, SLURM)
    assert agree(place, SLURM) != agree(place, SLURM | {"SLURM_STEP_ID": "1"})


@pytest.mark.parametrize("environ", [TORCHRUN, {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node7"}])
def test_several_nodes_with_nothing_in_common_is_an_error_that_names_the_ways(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"torchrun or srun.*init_process_group.*RANKSCOPE_RUN_ID"):
        agree(find_rank(environ, settings(environ)), environ)


def test_alone_the_run_is_what_was_asked_for_torchruns_or_a_new_one() -> None:
    place = find_rank({}, settings({}))

    assert agree(place, {}, run_id="mine").run_id == "mine"
    assert agree(place, {"TORCHELASTIC_RUN_ID": "job-7"}).run_id == "job-7"
    assert agree(place, {"TORCHELASTIC_RUN_ID": "none"}).run_id != "none"
    assert agree(place, {}).run_id != agree(place, {}).run_id
    with pytest.raises(ConfigError, match="TORCHELASTIC_RUN_ID is 'a/b'"):
        agree(place, {"TORCHELASTIC_RUN_ID": "a/b"})


def test_a_readable_id_is_words_and_the_same_for_the_same_seed() -> None:
    first, second, tail = readable_id(b"12345678").split("-")

    assert first.isalpha()
    assert second.isalpha()
    assert len(tail) == 6
    assert readable_id(b"12345678") != readable_id(b"12345679")
    assert len({readable_id(os.urandom(8)) for _ in range(1_000)}) == 1_000


def test_a_launch_can_be_given_as_a_uuid() -> None:
    launch = uuid.uuid4()

    assert settings({"RANKSCOPE_LAUNCH_ID": str(launch)}).launch_id == launch.bytes


def test_a_store_that_does_not_answer_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope._agree.STORE_TIMEOUT", timedelta(seconds=1))
    environ = TORCHRUN | {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }

    with pytest.raises(ConfigError, match=r"did not answer within 1 s .*RANKSCOPE_RUN_ID"):
        agree(find_rank(environ, settings(environ)), environ)
