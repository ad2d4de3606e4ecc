"""Which rank this process is, and how that is known.

The first source that is complete wins: an explicit setting, an initialised `torch.distributed`, the
launcher's variables, none (rank 0 of 1). Nothing is guessed silently: the source travels as a host
fact and `rankscope doctor` prints it.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope._settings import Settings
from rankscope.errors import ConfigError
from rankscope_proto.names import ProcessRole


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands in its launch.

    Attributes:
        rank: Global, 0-based.
        world_size: Ranks of the launch.
        local_rank: Within the node; -1: not known.
        nodes: Nodes of the launch; None: not known.
        source: How it is known, a word or two.
        warning: What a person should know about that, or "".
        process_role: What the process does there.
        worker_index: Of a DataLoader worker; -1: it is none.
    """

    rank: int
    world_size: int
    local_rank: int
    nodes: int | None
    source: str
    warning: str = ""
    process_role: ProcessRole = ProcessRole.TRAINER
    worker_index: int = -1


@dataclass(frozen=True, slots=True)
class _Launcher:
    source: str
    rank: str
    world_size: str
    local_rank: str
    local_size: str = ""
    nodes: str = ""
    witness: str = ""
    """A variable that must be there too: elsewhere the same names mean other things."""


_LAUNCHERS = (
    _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "LOCAL_RANK"),
    _Launcher("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_NNODES", "SLURM_STEP_ID"),
    _Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Launcher("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    _Launcher("PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _Launcher("LSF", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"),
)
_INTERACTIVE_SLURM = {"bash", "interactive"}
"""Job names under which Slurm's variables describe the shell, not a launch."""


def find_rank(environ: Mapping[str, str], settings: Settings) -> Place:
    """This process's place.

    Raises:
        ConfigError: a rank without a world size, or not below it.
    """
    place = _explicit(environ, settings) or _of_torch(environ) or _of_launcher(environ) or _bare(environ)
    if place is None:
        return Place(0, 1, 0, 1, "single")
    if not 0 <= place.rank < place.world_size:
        raise ConfigError(
            f"rank {place.rank} of a world of {place.world_size} (from {place.source}): ranks count from 0, so it is "
            f"at most {place.world_size - 1}; set RANKSCOPE_RANK and RANKSCOPE_WORLD_SIZE, or mend the launcher's"
        )
    return place


def _explicit(environ: Mapping[str, str], settings: Settings) -> Place | None:
    if settings.rank is None and settings.world_size is None:
        return None
    if settings.rank is None or settings.world_size is None:
        missing = "RANKSCOPE_RANK" if settings.rank is None else "RANKSCOPE_WORLD_SIZE"
        raise ConfigError(f"{missing} is not set, and its partner is: set both, or neither")
    local_rank = _number(environ, "LOCAL_RANK")
    return Place(
        settings.rank,
        settings.world_size,
        -1 if local_rank is None else local_rank,
        1 if settings.world_size == 1 else _number(environ, "GROUP_WORLD_SIZE"),
        "RANKSCOPE_RANK",
    )


def _of_torch(environ: Mapping[str, str]) -> Place | None:
    if "torch.distributed" not in sys.modules:
        return None
    from torch import distributed

    if not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    local_rank, nodes = _number(environ, "LOCAL_RANK"), _number(environ, "GROUP_WORLD_SIZE")
    return Place(rank, world_size, -1 if local_rank is None else local_rank, nodes, "torch.distributed")


def _of_launcher(environ: Mapping[str, str]) -> Place | None:
    for launcher in _LAUNCHERS:
        if launcher.source == "Slurm" and environ.get("SLURM_JOB_NAME") in _INTERACTIVE_SLURM:
            continue
        if launcher.witness and launcher.witness not in environ:
            continue
        rank, world_size = _number(environ, launcher.rank), _number(environ, launcher.world_size)
        if rank is not None and world_size is not None:
            local_rank = _number(environ, launcher.local_rank)
            nodes = _nodes(environ, launcher, world_size)
            return Place(rank, world_size, -1 if local_rank is None else local_rank, nodes, launcher.source)
    return None


def _bare(environ: Mapping[str, str]) -> Place | None:
    """RANK alone: PyTorchJob and PAI count nodes with it at pod level, so it is used and said."""
    rank, world_size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    if rank is None or world_size is None:
        return None
    warning = (
        "RANK and WORLD_SIZE are set without LOCAL_RANK: taken as processes, though some platforms count nodes "
        "with them; RANKSCOPE_RANK and RANKSCOPE_WORLD_SIZE say it for sure"
    )
    return Place(rank, world_size, -1, None, "RANK", warning)


def _nodes(environ: Mapping[str, str], launcher: _Launcher, /, world_size: int) -> int | None:
    nodes = _number(environ, launcher.nodes)
    if nodes is not None:
        return nodes
    local_size = _number(environ, launcher.local_size)
    if local_size is None:
        return None
    return 1 if local_size == world_size else max(2, world_size // max(1, local_size))


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "") if name else ""
    try:
        return int(text)
    except ValueError:
        return None
