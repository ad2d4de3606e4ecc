"""`init`: everything that is decided once, before the first step.

Who this process is, where its data goes, and whether the rank is free; then it is said in one line.
A wrong setting or a taken rank is an error here, at once; an ingest tier that does not answer is
not: training starts, batches wait in the node's spool, and whoever sends them goes on trying.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack, cast
from urllib.parse import quote

from rankscope import _current, _discovery
from rankscope._agree import Agreement, agree
from rankscope._carrier import Given
from rankscope._delivery import Delivery, deliver, sends_itself
from rankscope._host import boot_id, node_name
from rankscope._identity import Identity, readable_id
from rankscope._labels import text_of
from rankscope._plaintext import refuse_plaintext_key
from rankscope._process_end import ProcessEnd
from rankscope._rank import Place, find_rank
from rankscope._replay import replay
from rankscope._run import Run
from rankscope._run_info import RunInfo, WatchDefaults, host_facts
from rankscope._setting_readers import AgentMode, CollectivesMode, Fsync, UploadMode
from rankscope._settings import Settings
from rankscope._spool_export import SpoolExporter
from rankscope._spooling import discard, find_root, make_spool
from rankscope._thread_patch import propagate_threads
from rankscope._tracing_options import RedactHook, TracingOptions
from rankscope._voice import say
from rankscope._worker import carried_by, follow, joined_run, worker_place
from rankscope.collectives.lazy import Awaited
from rankscope.errors import ConfigError
from rankscope.spool import SpoolError, SpoolWriter
from rankscope_proto.identity import uuid7
from rankscope_proto.names import ProcessRole, Role

logger = logging.getLogger("rankscope")


class SettingArguments(TypedDict, total=False):
    """Settings given to `init` instead of the environment; `_settings.SETTINGS` says what each means."""

    endpoint: str | Sequence[str]
    url: str
    launch_id: str
    rank: int
    world_size: int
    mesh: Mapping[str, int]
    upload_mode: UploadMode
    offline_dir: str | os.PathLike[str]
    spool: str
    spool_bytes: int | str
    spool_fsync: Fsync
    spool_any_fs: bool
    agent: AgentMode
    key: str
    tls_ca: str
    tls_cert: str
    tls_key: str
    insecure: bool
    home: str
    quiet: bool
    level: int
    every: int
    include: Sequence[str]
    exclude: Sequence[str]
    roles: Sequence[Role]
    capture_file: str | os.PathLike[str]
    trace_sample_rate: float
    trace_sample_by_kind: Mapping[str, float]
    max_spans_per_trace: int
    redact_keys: Sequence[str]
    redact_patterns: Sequence[str]
    redact: RedactHook
    preview_bytes: int
    collectives: CollectivesMode
    gc_spans: bool
    propagate_threads: bool


def init(
    project: str | None = None,
    name: str | None = None,
    *,
    run_id: str | None = None,
    config: Mapping[str, object] | None = None,
    tags: Sequence[str] | None = None,
    carrier: Given | None = None,
    **settings: Unpack[SettingArguments],
) -> Run:
    """Join the run; every rank calls it, and all land in one run.

    A second call in one process returns the same run when project and run id agree with it or are
    not given. A forked child does not belong to its parent's run and may make its own.

    Args:
        project: The unit of access; default: `RANKSCOPE_PROJECT`, else "default".
        name: What people call the run.
        run_id: The run; default: `RANKSCOPE_RUN_ID`, else torchrun's, else agreed by the ranks.
        config: Settings of the training, shown with the run.
        tags: Words to find the run by.
        carrier: What `span.context()` returned in a process of the run that this one works for: it joins that
            run as a worker, and its root spans are children of that span. Given again in a worker: of that one.
            A forked child takes over the settings of its parent; any other has its own.
        **settings: Any setting of the SDK, in place of its environment variable.

    Raises:
        ConfigError: a setting is wrong, the rank is not below the world size, a living process holds
            the rank, another run is current, several nodes have no way to agree on a run, or the folder named
            for the spool cannot hold one.
        TypeError, ValueError: the carrier is none.
    """
    carried = carried_by(carrier, os.environ)
    joined = joined_run(carried, project=project, run_id=run_id)
    asked: dict[str, object] = {"project": project, "run_id": run_id, **joined}
    current = _current.get()
    if current is not None:
        return follow(_again(current, asked), carrier)
    given: dict[str, object] = {**(_current.inherited() if joined else {}), **settings}
    chosen = Settings.load(os.environ, **{**given, **asked})
    chosen.check_together()
    place = worker_place(carried) if carried is not None and joined else find_rank(os.environ, chosen)
    hook = _hook(given.get("redact"))
    tracing = replace(TracingOptions.of(chosen, redact=hook), parent=None if carried is None else carried.parent)
    run = _joined(chosen, place, info=_info(name, config, tags=tags, place=place, settings=chosen), tracing=tracing)
    if chosen.propagate_threads:
        propagate_threads(run)
    _current.replace(run, given)
    return run


def _again(current: Run, asked: Mapping[str, object]) -> Run:
    for word, wanted, present in (("project", asked["project"], current.project), ("run", asked["run_id"], current.id)):
        if wanted is not None and wanted != present:
            raise ConfigError(
                f"this process is in {word} {present!r} and was asked for {word} {wanted!r}: "
                f"finish() the run {current.id!r} first, one process is in one run at a time"
            )
    return current


def _hook(given: object) -> RedactHook | None:
    if given is not None and not callable(given):
        raise ConfigError(f"redact is {given!r}: it is a function of a text that returns a text")
    return cast("RedactHook | None", given)


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
        watch=WatchDefaults(
            level=settings.level,
            every=settings.every,
            include=settings.include,
            exclude=settings.exclude,
            roles=settings.roles,
            capture_file=settings.capture_file,
        ),
    )


def _joined(settings: Settings, place: Place, *, info: RunInfo, tracing: TracingOptions) -> Run:
    says = not settings.quiet and place.rank == 0 and place.process_role is ProcessRole.TRAINER
    if settings.upload_mode == "disabled":
        why = "nothing is recorded: RANKSCOPE_UPLOAD_MODE is disabled" if says else ""
        return _unrecorded(settings, place, info=info, why=why)
    endpoints = _endpoints(settings)
    # Whoever sends refuses it too, in another process and later: here is where somebody reads it.
    for endpoint in endpoints if settings.key is not None else ():
        refuse_plaintext_key(endpoint, is_insecure=settings.insecure)
    agreed = _agreed(settings, place)
    identity = _identity(settings, place, run_id=agreed.run_id, launch_id=agreed.launch_id)
    try:
        settings, warning = find_root(settings)
        writer = make_spool(settings, identity, sends_itself=sends_itself(settings, endpoints))
    except SpoolError as error:
        return _unrecorded(settings, place, info=info, why="" if settings.quiet else f"nothing is recorded: {error}")
    delivery = deliver(settings, identity, endpoints=endpoints)
    info = replace(info, url=_url(settings, identity))
    run, failure = _recording(writer, identity, settings=settings, info=info, delivery=delivery, tracing=tracing)
    for line in (place.warning, warning, _whereabouts(identity, settings, endpoints, failure)):
        if says and line:
            say(line)
    if failure and place.process_role is ProcessRole.WORKER and place.worker_index <= 0:  # one of a DataLoader's
        logger.warning("a worker of run %s: %s; its batches wait in %s", run.id, failure, settings.spool_root)
    if says:
        run.on_finish(lambda outcome: say(f"run {run.id}, rank 0: {outcome}"))
    ProcessEnd(run).install()
    if place.process_role is ProcessRole.TRAINER:
        Awaited(run, is_wanted=settings.collectives != "off", with_gc=settings.gc_spans).begin()
    return run


def _recording(
    writer: SpoolWriter,
    identity: Identity,
    *,
    settings: Settings,
    info: RunInfo,
    delivery: Delivery,
    tracing: TracingOptions,
) -> tuple[Run, str]:
    """The run, and what stands between it and the gateway for now, or ""."""
    try:
        failure = delivery.settle()
    except ConfigError:
        delivery.close()
        discard(writer)
        raise
    failure = delivery.begin(writer.folder) or failure
    exporter = SpoolExporter(
        writer,
        upload=delivery.upload,
        waits_for="accepted" if settings.upload_mode == "sync" else "spooled",
        keeps_unsent=settings.offline_dir is not None,
    )
    run = Run(exporter, identity=identity, info=info, tracing=tracing)
    run.on_finish(lambda _: _let_go(run, delivery))
    if settings.offline_dir is not None:
        run.replay_by(lambda patience_s: replay(settings, exporter, patience_s=patience_s))
    return run, failure


def _let_go(run: Run, delivery: Delivery) -> None:
    delivery.close()
    _current.forget(run)


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


def _endpoints(settings: Settings) -> tuple[str, ...]:
    """Where data goes; empty: nobody knows yet."""
    if settings.endpoint:
        return settings.endpoint
    found = _discovery.read(settings.home)
    return () if found is None else (found.gateway,)


def _url(settings: Settings, identity: Identity) -> str:
    """Where the query service that reads what goes to these gateways shows the run; "": none is known."""
    query = settings.url
    if query is None:
        found = _discovery.read(settings.home)
        is_ours = found is not None and settings.endpoint in ((), (found.gateway,))
        query = found.query if found is not None and is_ours else ""
    return f"{query}/api/v1/runs/{quote(identity.run_id)}?project={quote(identity.project)}" if query else ""


def _identity(settings: Settings, place: Place, *, run_id: str, launch_id: bytes) -> Identity:
    return Identity(
        project=settings.project,
        run_id=run_id,
        launch_id=launch_id,
        incarnation=uuid7(time.time_ns(), os.urandom(10)),
        rank=place.rank,
        local_rank=place.local_rank,
        world_size=place.world_size,
        process_role=place.process_role,
        worker_index=place.worker_index,
        parent_rank=place.rank if place.process_role is ProcessRole.WORKER else -1,
        node=node_name(),
        pid=os.getpid(),
        boot_id=boot_id(),
        mesh=settings.mesh,
    )


def _whereabouts(identity: Identity, settings: Settings, endpoints: tuple[str, ...], /, failure: str) -> str:
    ranks = "1 rank" if identity.world_size == 1 else f"{identity.world_size} ranks"
    what = f"run {identity.run_id} (project {identity.project}, {ranks})"
    root = settings.spool_root
    if not endpoints:
        return (
            f"{what} is kept in {root}: no server of yours runs here; start one with `rankscope up` and send it with "
            f"`rankscope drain {root}`, or set RANKSCOPE_ENDPOINT to the gateway's host:port"
        )
    if settings.offline_dir is not None and (settings.sender == "none" or failure):
        why = f"{failure}. " if failure else ""
        return f"{what} is kept in {root}: {why}run.replay_offline() sends it, or `rankscope drain {root}`"
    if settings.sender == "none":
        return f"{what} is kept in {root}: send it with `rankscope drain {root}`"
    if not failure:
        return f"{what} is recorded at {', '.join(endpoints)}"
    # A failure that asks what may be wrong by itself (a refused key) has its answer there, not in the endpoint.
    why = failure if failure.endswith("?") else f"{failure}; is it running, and is RANKSCOPE_ENDPOINT right?"
    return f"{what}: {why} Training goes on, batches wait in {root}, and this is tried again"
