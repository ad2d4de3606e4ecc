"""Joining a run from a process that works for one of its ranks: a DataLoader worker, an actor, the target of a call.

Such a process is told by a carrier what it works for. It records into a spool of its own, as what it is (role
`worker`), beside the rank that it serves: it claims nothing, says on stderr only what keeps it from recording or
sending, and its root spans are children of the carrier's span. Where a process was started by another system,
`TRACEPARENT` says what its root spans belong to.
"""

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankscope._carrier import Carrier, Given, parent_for, read_carrier
from rankscope._rank import Place
from rankscope._span import Span
from rankscope.errors import ConfigError
from rankscope_proto.names import ProcessRole

if TYPE_CHECKING:
    from rankscope._recording import Recording
    from rankscope._run import Run

logger = logging.getLogger("rankscope")

VARIABLE = "TRACEPARENT"
"""Not one of ours: other systems set it, for whatever they start."""


def carried_by(given: Given | None, environ: Mapping[str, str]) -> Carrier | None:
    """What this process is told to belong to: by a carrier, else by its environment; None: by nobody.

    Args:
        given: The carrier.
        environ: The environment; what is wrong there is only said: who set it is not who can mend this program.

    Raises:
        TypeError: the carrier is neither a dict, nor headers, nor a text.
        ValueError: an id in it is none.
    """
    if given is not None:
        return read_carrier(given)
    try:
        return read_carrier(environ[VARIABLE]) if environ.get(VARIABLE) else None
    except ValueError as error:
        logger.warning("%s is not used: %s", VARIABLE, error)
        return None


def joined_run(carrier: Carrier | None, *, project: str | None, run_id: str | None) -> dict[str, str]:
    """The settings that a carrier fixes: those of its run; empty: it names none.

    Raises:
        ConfigError: another project or run was asked for beside it.
        ValueError: it does not name the run's launch.
    """
    if carrier is None or not carrier.run_id:
        return {}
    if not carrier.launch_id:
        raise ValueError("the carrier has no launch_id: pass on all of what span.context() returned")
    for word, asked, carried in (("project", project, carrier.project), ("run", run_id, carrier.run_id)):
        if asked is not None and carried and asked != carried:
            raise ConfigError(
                f"the carrier belongs to {word} {carried!r}, and init was asked for {word} {asked!r}: leave it out, "
                "the carrier says it"
            )
    said = {"project": carrier.project, "run_id": carrier.run_id, "launch_id": carrier.launch_id.hex()}
    if not any(carrier.launch_id):  # nobody records the run, and it would have no beginning
        said["upload_mode"] = "disabled"
    return {name: value for name, value in said.items() if value}


def worker_place(carrier: Carrier) -> Place:
    """Where a worker stands: at the rank that it serves, without holding it."""
    return Place(
        carrier.rank if carrier.rank < carrier.world_size else -1,  # a carrier made by hand may name any
        carrier.world_size,
        -1,
        None,
        "carrier",
        process_role=ProcessRole.WORKER,
        worker_index=_data_loader_index(),
    )


def follow(run: "Run", given: Given | None) -> "Run":
    """Put what begins in this thread, where no span is open, under another carrier's span, if this is a worker.

    A process that keeps its place for many tasks is told with each whose it is.
    """
    recording: Recording = run._recording  # pyright: ignore[reportPrivateUsage]  # internal to this distribution
    is_worker = recording.identity.process_role is ProcessRole.WORKER
    if given is not None and is_worker and not isinstance(recording.current.get(), Span):
        recording.current.set(parent_for(recording, given))
    return run


def _data_loader_index() -> int:
    """This process's index among the workers of a DataLoader; -1: it is none of them."""
    module = sys.modules.get("torch.utils.data")
    info = None if module is None else module.get_worker_info()
    return -1 if info is None else int(info.id)
