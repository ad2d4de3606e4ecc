"""Who this process is in the run: the part of a batch's header that never changes."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankscope._host import boot_id, node_name
from rankscope_proto.identity import uuid7
from rankscope_proto.names import ProcessRole

if TYPE_CHECKING:
    from rankscope._clock import Clock
    from rankscope._ids import Ids


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one launch of one run.

    Attributes:
        project: The unit of access.
        run_id: The training job, the same on all ranks and over restarts.
        launch_id: 16 bytes, the same on all ranks of one start of the run.
        incarnation: UUIDv7 of this process start, 16 bytes.
        rank: Global, 0-based; -1: the process has none.
        local_rank: Within the node; -1: not known.
        world_size: Ranks of the launch, at least 1.
        node: Host name.
        pid: Process id on the node.
        boot_id: Boot of the node; monotonic times compare within one.
        process_role: What the process does in the run.
        worker_index: Of a DataLoader worker; -1: none.
        parent_rank: The rank a worker serves; -1: none.
        mesh: Axis name and coordinate, per axis of the parallel mesh.
    """

    project: str
    run_id: str
    launch_id: bytes
    incarnation: bytes
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    node: str = ""
    pid: int = 0
    boot_id: str = ""
    process_role: ProcessRole = ProcessRole.TRAINER
    worker_index: int = -1
    parent_rank: int = -1
    mesh: tuple[tuple[str, int], ...] = ()


_FIRST = (
    "amber",
    "bold",
    "brisk",
    "calm",
    "clear",
    "cool",
    "early",
    "fair",
    "fresh",
    "grand",
    "green",
    "keen",
    "light",
)
_SECOND = ("badger", "birch", "brook", "cedar", "comet", "falcon", "fjord", "heron", "ibis", "larch", "lynx", "otter")
_TAIL = "0123456789abcdefghjkmnpqrstvwxyz"


def readable_id(seed: bytes) -> str:
    """A run id that people can say, such as `calm-otter-7k2m9x`; the same seed gives the same id.

    Args:
        seed: At least 8 bytes; 38 bits of them are used.
    """
    number = int.from_bytes(seed[:8], "big")
    number, first = divmod(number, len(_FIRST))
    number, second = divmod(number, len(_SECOND))
    tail = ""
    for _ in range(6):
        number, digit = divmod(number, len(_TAIL))
        tail += _TAIL[digit]
    return f"{_FIRST[first]}-{_SECOND[second]}-{tail}"


def alone(clock: "Clock", ids: "Ids") -> Identity:
    """The only process of a run of its own."""
    return Identity(
        project="default",
        run_id=readable_id(ids.entropy(8)),
        launch_id=ids.entropy(16),
        incarnation=uuid7(clock.wall_ns(), ids.entropy(10)),
        pid=os.getpid(),
        node=node_name(),
        boot_id=boot_id(),
    )
