"""How the processes of a launch come to the same run id and launch id without being told.

Ways, the first that applies: the store of `torch.distributed` or of torchrun's agent (reachable
before `init_process_group`); the Slurm job and step; on one node, what all its ranks can see alike:
their launcher. Several nodes with none of these would each make a run of their own, so that is an
error which names the ways.
"""

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from rankscope._host import boot_id, node_name, process_start
from rankscope._identity import readable_id
from rankscope._plaintext import is_loopback_host
from rankscope._rank import Place
from rankscope._setting_readers import checked_id
from rankscope.errors import ConfigError

STORE_TIMEOUT = timedelta(seconds=30)
_PREFIX = "rankscope"


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all ranks of a launch have in common.

    Attributes:
        run_id: The run.
        launch_id: 16 bytes.
        way: How it was agreed, for people.
    """

    run_id: str
    launch_id: bytes
    way: str


class Store(Protocol):
    """The one call of torch's stores that agreeing needs."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set the key where it holds `expected` ("": where it is not set); the value it holds then."""
        ...


def agree(place: Place, environ: Mapping[str, str], *, run_id: str | None = None, ordinal: int = 0) -> Agreement:
    """Agree with the other ranks.

    Args:
        place: Where this process stands.
        environ: The environment.
        run_id: The run id asked for; None: `TORCHELASTIC_RUN_ID`, or an agreed one.
        ordinal: How many runs this process had before, the same on all ranks: each is a launch of its own.

    Raises:
        ConfigError: several nodes and no way to agree; the launcher's store does not answer; or torchrun's
            run id cannot be a run's.
    """
    torchrun_id = environ.get("TORCHELASTIC_RUN_ID", "none")
    wanted = run_id or (checked_id("TORCHELASTIC_RUN_ID", torchrun_id) if torchrun_id != "none" else None)
    if place.world_size == 1:
        return Agreement(wanted or readable_id(os.urandom(8)), os.urandom(16), "alone")
    store = _default_store() or _agent_store(environ)
    if store is not None:
        return agree_through(store, f"{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}.{ordinal}", run_id=wanted)
    seed, way = _common_seed(place, environ)
    seed = f"{seed}/{ordinal}"
    return Agreement(wanted or readable_id(_digest(seed, "run")), _digest(seed, "launch"), way)


def agree_through(store: Store, start: str, *, run_id: str | None) -> Agreement:
    """Agree through a store: whoever comes first proposes, everyone takes that.

    Args:
        store: The store, the same for all ranks.
        start: What tells this start of the run from others that use the same store.
        run_id: The run, where it is known already.
    """
    ordinal = start.rpartition(".")[2]
    run = run_id or store.compare_set(f"{_PREFIX}/{ordinal}/run", "", readable_id(os.urandom(8))).decode()
    launch = store.compare_set(f"{_PREFIX}/{start}/launch", "", os.urandom(16).hex()).decode()
    return Agreement(run, bytes.fromhex(launch), "the launcher's store")


def _default_store() -> Store | None:
    if "torch.distributed" not in sys.modules:
        return None
    from torch import distributed
    from torch.distributed import distributed_c10d

    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed_c10d._get_default_store()  # pyright: ignore[reportPrivateUsage]  # torch has no public name for it


def _agent_store(environ: Mapping[str, str]) -> Store | None:
    """Torchrun's own store; it runs in the launcher, so every rank is its client."""
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    if not host or not port.isdigit():
        return None
    from torch._C._distributed_c10d import TCPStore  # torch.distributed has it too, unknown to type checkers

    try:
        return TCPStore(host, int(port), is_master=False, timeout=STORE_TIMEOUT, wait_for_workers=False)
    except RuntimeError as error:  # torch's DistStoreError is one
        raise ConfigError(
            f"torchrun's store at {host}:{port} did not answer within {STORE_TIMEOUT.seconds} s ({error}); "
            "set RANKSCOPE_RUN_ID to the same value on all ranks to do without it"
        ) from error


def _common_seed(place: Place, environ: Mapping[str, str], /) -> tuple[str, str]:
    """Text that is the same on all ranks of this launch and on no other, and where it comes from."""
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    if job and step:
        restart = environ.get("SLURM_RESTART_COUNT", "0")
        return f"slurm/{environ.get('SLURM_CLUSTER_NAME', '')}/{job}/{step}/{restart}", "the Slurm job and step"
    if place.nodes == 1 or (place.nodes is None and _is_local(environ.get("MASTER_ADDR"))):
        launcher = os.getppid()
        restart = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        port = environ.get("MASTER_PORT", "")
        return f"node/{boot_id()}/{launcher}/{process_start(launcher)}/{port}/{restart}", "the launcher's process"
    raise ConfigError(
        f"the {place.world_size} ranks are on several nodes, or may be, and nothing tells them their common run; "
        "start them with torchrun or srun, call init after torch.distributed.init_process_group, "
        "or set RANKSCOPE_RUN_ID and RANKSCOPE_LAUNCH_ID to the same values on all of them"
    )


def _is_local(host: str | None) -> bool:
    return not host or host == node_name() or is_loopback_host(host)


def _digest(seed: str, use: str) -> bytes:
    return hashlib.blake2b(f"{use}/{seed}".encode(), digest_size=16).digest()
