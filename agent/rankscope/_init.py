"""`init`: everything that is decided once, before the first step.

Who this process is, where its data goes, and whether the rank is free; then it is said in one line.
A wrong setting or a taken rank is an error here, at once; an ingest tier that does not answer is
not: training starts, rows wait in bounded memory, and what does not fit is counted.
"""

import atexit
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict, Unpack

from rankscope import _current, _discovery
from rankscope._agree import Agreement, agree
from rankscope._host import boot_id, node_name
from rankscope._identity import Identity, readable_id
from rankscope._labels import text_of
from rankscope._rank import Place, find_rank
from rankscope._run import Outcome, Run, status_after
from rankscope._run_info import RunInfo, host_facts
from rankscope._settings import Mode, Settings
from rankscope._voice import say
from rankscope.errors import ConfigError
from rankscope_proto.identity import uuid7
from rankscope_proto.names import RunStatus

if TYPE_CHECKING:
    from rankscope._claim import Claim
    from rankscope._connection import Connection

_FORKED = (
    "nothing is recorded: this process was forked from one that had used gRPC, which hangs here; "
    "start it with `spawn`, or call rankscope.init() only after the fork"
)

ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


class SettingArguments(TypedDict, total=False):
    """Settings given to `init` instead of the environment; `_settings.SETTINGS` says what each means."""

    endpoint: str
    launch_id: str
    rank: int
    world_size: int
    mesh: Mapping[str, int]
    mode: Mode
    home: str
    quiet: bool
    level: int
    every: int


def init(
    project: str | None = None,
    name: str | None = None,
    *,
    run_id: str | None = None,
    config: Mapping[str, object] | None = None,
    tags: Sequence[str] | None = None,
    **settings: Unpack[SettingArguments],
) -> Run:
    """Join the run; every rank calls it, and all land in one run.

    A second call in one process returns the same run when project and run id agree with it or are
    not given. A forked child does not belong to its parent's run and may make its own; where the parent used
    gRPC before the fork it records nothing, and says so: gRPC hangs there. Start such children with `spawn`.

    Args:
        project: The unit of access; default: `RANKSCOPE_PROJECT`, else "default".
        name: What people call the run.
        run_id: The run; default: `RANKSCOPE_RUN_ID`, else torchrun's, else agreed by the ranks.
        config: Settings of the training, shown with the run.
        tags: Words to find the run by.
        **settings: Any setting of the SDK, in place of its environment variable.

    Raises:
        ConfigError: a setting is wrong, the rank is not below the world size, a living process holds
            the rank, another run is current, or several nodes have no way to agree on a run.
    """
    current = _current.get()
    if current is not None:
        return _again(current, project, run_id=run_id)
    chosen = Settings.load(os.environ, project=project, run_id=run_id, **settings)
    place = find_rank(os.environ, chosen)
    run = _joined(chosen, place, info=_info(name, config, tags=tags, place=place, settings=chosen))
    _current.replace(run)
    return run


def _again(current: Run, project: str | None, *, run_id: str | None) -> Run:
    for word, asked, present in (("project", project, current.project), ("run", run_id, current.id)):
        if asked is not None and asked != present:
            raise ConfigError(
                f"this process is in {word} {present!r} and was asked for {word} {asked!r}: "
                f"finish() the run {current.id!r} first, one process is in one run at a time"
            )
    return current


def _info(
    name: str | None,
    config: Mapping[str, object] | None,
    *,
    tags: Sequence[str] | None,
    place: Place,
    settings: Settings,
) -> RunInfo:
    return RunInfo(
        name="" if name is None else text_of(name),
        config=dict(config or {}),
        tags=tuple(text_of(tag) for tag in tags or ()),
        facts={**host_facts(), "rank_source": place.source},
        watch_level=settings.level,
        watch_every=settings.every,
    )


def _joined(settings: Settings, place: Place, *, info: RunInfo) -> Run:
    endpoint, why_not = _endpoint(settings)
    says = not settings.quiet and place.rank == 0
    if endpoint is None:
        return _unrecorded(settings, place, info=info, why=why_not if says else "")
    # Not at the top: who records nowhere need not load gRPC, nor have its settings for fork changed.
    from rankscope._claim import Claim
    from rankscope._connection import Connection, survived_fork
    from rankscope._grpc_export import GrpcExporter

    if not survived_fork():
        return _unrecorded(settings, place, info=info, why="" if settings.quiet else _FORKED)
    agreed = _agreed(settings, place)
    identity = _identity(settings, place, run_id=agreed.run_id, launch_id=agreed.launch_id)
    connection = Connection(endpoint)
    claim = Claim(connection, identity)
    try:
        answer = claim.settle()
    except ConfigError:
        claim.close()
        connection.close()
        raise
    if says and place.warning:
        say(place.warning)
    if says:
        say(_whereabouts(identity, endpoint, failure=answer.failure))
    run = Run(GrpcExporter(connection), identity=identity, info=info)
    _end_with_the_process(run, claim, connection=connection, is_quiet=settings.quiet)
    return run


def _unrecorded(settings: Settings, place: Place, *, info: RunInfo, why: str) -> Run:
    """A run that records nothing; `why` is said, if given."""
    if why:
        say(why)
    unshared = _identity(settings, place, run_id=settings.run_id or readable_id(os.urandom(8)), launch_id=bytes(16))
    run = Run(None, identity=unshared, info=info)
    run.on_finish(lambda _: _current.forget(run))
    return run


def _agreed(settings: Settings, place: Place) -> Agreement:
    if settings.run_id is not None and settings.launch_id is not None:
        return Agreement(settings.run_id, settings.launch_id, "RANKSCOPE_RUN_ID and RANKSCOPE_LAUNCH_ID")
    agreed = agree(place, os.environ, run_id=settings.run_id, ordinal=_current.count())
    return agreed if settings.launch_id is None else replace(agreed, launch_id=settings.launch_id)


def _endpoint(settings: Settings) -> tuple[str | None, str]:
    """Where data goes; or None and why it goes nowhere."""
    if settings.mode == "disabled":
        return None, "nothing is recorded: RANKSCOPE_MODE is disabled"
    if settings.endpoint is not None:
        return settings.endpoint, ""
    found = _discovery.read(settings.home)
    if found is not None:
        return found.gateway, ""
    return None, (
        f"nothing is recorded: no server of yours runs here ({settings.home / _discovery.FILE}); "
        "start one with `rankscope up`, or set RANKSCOPE_ENDPOINT to the gateway's host:port"
    )


def _identity(settings: Settings, place: Place, *, run_id: str, launch_id: bytes) -> Identity:
    return Identity(
        project=settings.project,
        run_id=run_id,
        launch_id=launch_id,
        incarnation=uuid7(time.time_ns(), os.urandom(10)),
        rank=place.rank,
        local_rank=place.local_rank,
        world_size=place.world_size,
        node=node_name(),
        pid=os.getpid(),
        boot_id=boot_id(),
        mesh=settings.mesh,
    )


def _whereabouts(identity: Identity, endpoint: str, *, failure: str) -> str:
    ranks = "1 rank" if identity.world_size == 1 else f"{identity.world_size} ranks"
    what = f"run {identity.run_id} (project {identity.project}, {ranks})"
    if not failure:
        return f"{what} is recorded at {endpoint}"
    return (
        f"{what}: {failure}; is it running, and is RANKSCOPE_ENDPOINT right? "
        "Training goes on, rows wait in memory, and this is tried again"
    )


def _end_with_the_process(run: Run, claim: "Claim", *, connection: "Connection", is_quiet: bool) -> None:
    """Finish the run when the process ends, and undo what `init` set up when the run is finished."""
    hook = _FailureHook(sys.excepthook)
    sys.excepthook = hook

    def at_exit() -> None:
        run.finish(hook.status)

    def finished(outcome: Outcome) -> None:
        atexit.unregister(at_exit)
        if sys.excepthook is hook:
            sys.excepthook = hook.before
        claim.close()
        connection.close()
        _current.forget(run)
        if run.rank == 0 and not is_quiet:
            say(f"run {run.id}, rank 0: {outcome}")

    atexit.register(at_exit)
    run.on_finish(finished)


class _FailureHook:
    """Notes that an exception ended the program, and lets whoever was there before report it."""

    def __init__(self, before: ExceptHook) -> None:
        self.before = before
        self.status = RunStatus.FINISHED

    def __call__(
        self, error_class: type[BaseException], error: BaseException, traceback: TracebackType | None, /
    ) -> object:
        self.status = status_after(error_class, error)
        return self.before(error_class, error, traceback)
