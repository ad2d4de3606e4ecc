"""What the SDK can be told from outside: every setting once, with its variable, default and meaning.

An argument of `init` wins over the environment, the environment over the default. Nothing else in
the SDK reads settings from the environment; the rank's own variables are read in `_rank`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from rankscope._home import data_folder
from rankscope._setting_readers import READERS, AgentMode, CollectivesMode, Fsync, Setting, UploadMode
from rankscope._tracing_options import SPANS_PER_TRACE
from rankscope.errors import ConfigError
from rankscope.privacy import LEAST_PREVIEW, MOST_PREVIEW, PREVIEW_BYTES
from rankscope_proto.names import Role

SETTINGS: dict[str, Setting] = {
    "endpoint": Setting(
        "RANKSCOPE_ENDPOINT",
        "found in the data folder",
        "host:port of the gateway, or several parted by commas; https://host:port means TLS.",
    ),
    "url": Setting(
        "RANKSCOPE_URL",
        "of the server in the data folder",
        "The query service, for `run.url` and the commands that read.",
    ),
    "project": Setting("RANKSCOPE_PROJECT", "default", "The unit of access; at most 128 bytes, without '/'."),
    "run_id": Setting(
        "RANKSCOPE_RUN_ID", "agreed by the ranks", "The run; the same on all ranks; at most 128 bytes, without '/'."
    ),
    "launch_id": Setting(
        "RANKSCOPE_LAUNCH_ID", "agreed by the ranks", "This start of the run, the same on all ranks: 32 hex digits."
    ),
    "rank": Setting("RANKSCOPE_RANK", "from the launcher", "Global rank, 0-based; together with the world size."),
    "world_size": Setting("RANKSCOPE_WORLD_SIZE", "from the launcher", "Number of ranks of the launch."),
    "mesh": Setting("RANKSCOPE_MESH", "none", "This rank's coordinates in the parallel mesh, as dp=2,tp=0."),
    "upload_mode": Setting(
        "RANKSCOPE_UPLOAD_MODE",
        "async",
        "async; sync: `flush` and `finish` wait until it is accepted; spool: files only; disabled: nothing recorded.",
    ),
    "offline_dir": Setting(
        "RANKSCOPE_OFFLINE_DIR", "none", "Folder that keeps what could not be sent, for `run.replay_offline()`."
    ),
    "spool": Setting(
        "RANKSCOPE_SPOOL", "spool in the data folder", "Where batches lie until they are in the store: a local disk."
    ),
    "spool_bytes": Setting(
        "RANKSCOPE_SPOOL_BYTES",
        "8 GiB or 20 % of the free space",
        "Most bytes a process keeps in its spool, at least 4 MiB; 64M and 8G are understood.",
    ),
    "spool_fsync": Setting(
        "RANKSCOPE_SPOOL_FSYNC", "second", "second: the disk has all but the last second; always: every batch."
    ),
    "spool_any_fs": Setting(
        "RANKSCOPE_SPOOL_ANY_FS", "0", "1: the spool may lie on a network's file system, which may hold training up."
    ),
    "agent": Setting(
        "RANKSCOPE_AGENT",
        "by `upload_mode` and `offline_dir`",
        "Who sends: process (one for the node), thread (of this process), none (`rankscope drain`, later).",
    ),
    "key": Setting("RANKSCOPE_KEY", "none", "API key with the scope ingest; kept out of every output."),
    "tls_ca": Setting("RANKSCOPE_TLS_CA", "the system's", "File with the authorities that sign the gateway."),
    "tls_cert": Setting("RANKSCOPE_TLS_CERT", "none", "File with this node's certificate, for mutual TLS."),
    "tls_key": Setting("RANKSCOPE_TLS_KEY", "none", "File with the key of that certificate."),
    "insecure": Setting("RANKSCOPE_INSECURE", "0", "1: a key may cross a network without TLS."),
    "home": Setting("RANKSCOPE_HOME", "~/.local/share/rankscope", "The data folder."),
    "quiet": Setting("RANKSCOPE_QUIET", "0", "1: say nothing on stderr but errors."),
    "level": Setting("RANKSCOPE_LEVEL", "1", "Probe level of `watch`: 0, 1, 2 or 3."),
    "every": Setting("RANKSCOPE_EVERY", "10", "Stride of the steps that `watch` captures in full, at least 1."),
    "include": Setting(
        "RANKSCOPE_INCLUDE", "everything", "Globs of paths that `watch` captures, with commas between them."
    ),
    "exclude": Setting("RANKSCOPE_EXCLUDE", "none", "Globs of paths that `watch` leaves out, also of the included."),
    "roles": Setting("RANKSCOPE_ROLES", "all", "Roles that `watch` captures, as weight,grad,activation."),
    "capture_file": Setting(
        "RANKSCOPE_CAPTURE_FILE",
        "none",
        "File in which another process may write what `watch` is to capture from then on.",
    ),
    "trace_sample_rate": Setting(
        "RANKSCOPE_TRACE_SAMPLE_RATE", "1", "Share of the traces that are kept, 0 to 1; traces of steps all are."
    ),
    "trace_sample_by_kind": Setting(
        "RANKSCOPE_TRACE_SAMPLE_BY_KIND", "all", "Share of the spans of a kind that are kept, as tool=0.1,model=1."
    ),
    "max_spans_per_trace": Setting(
        "RANKSCOPE_MAX_SPANS_PER_TRACE", "100000", "Most spans of one trace that a process keeps, at least 1."
    ),
    "redact_keys": Setting(
        "RANKSCOPE_REDACT_KEYS", "none", "More keys whose values are masked, with commas between them."
    ),
    "redact_patterns": Setting(
        "RANKSCOPE_REDACT_PATTERNS", "none", "More regular expressions whose matches are masked, one a line."
    ),
    "preview_bytes": Setting(
        "RANKSCOPE_PREVIEW_BYTES",
        str(PREVIEW_BYTES),
        f"Most bytes of a preview of an input, an output or an error, {LEAST_PREVIEW} to {MOST_PREVIEW}.",
    ),
    "collectives": Setting(
        "RANKSCOPE_COLLECTIVES", "auto", "auto: collectives of `torch.distributed` are recorded; off: none is."
    ),
    "gc_spans": Setting(
        "RANKSCOPE_GC_SPANS", "1", "0: no spans of garbage collections of 1 ms and more where there are several ranks."
    ),
    "propagate_threads": Setting(
        "RANKSCOPE_PROPAGATE_THREADS", "0", "1: threads and thread pools begin inside the span that started them."
    ),
}
"""Every setting of the SDK, by the name of its attribute in `Settings`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force; `SETTINGS` says what each means. None: not set."""

    home: Path
    endpoint: tuple[str, ...] = ()
    url: str | None = None
    project: str = "default"
    run_id: str | None = None
    launch_id: bytes | None = None
    rank: int | None = None
    world_size: int | None = None
    mesh: tuple[tuple[str, int], ...] = ()
    upload_mode: UploadMode = "async"
    offline_dir: Path | None = None
    spool: Path | None = None
    spool_bytes: int | None = None
    spool_fsync: Fsync = "second"
    spool_any_fs: bool = False
    agent: AgentMode | None = None
    key: str | None = field(default=None, repr=False)
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    quiet: bool = False
    level: int | None = None
    every: int | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    capture_file: Path | None = None
    trace_sample_rate: float = 1.0
    trace_sample_by_kind: tuple[tuple[str, float], ...] = ()
    max_spans_per_trace: int = SPANS_PER_TRACE
    redact_keys: tuple[str, ...] = ()
    redact_patterns: tuple[str, ...] = ()
    preview_bytes: int = PREVIEW_BYTES
    collectives: CollectivesMode = "auto"
    gc_spans: bool = True
    propagate_threads: bool = False

    @property
    def spool_root(self) -> Path:
        """The folder of the spools: of this node's, or the one kept for what could not be sent."""
        return self.spool or self.offline_dir or self.home / "spool"

    @property
    def sender(self) -> AgentMode:
        """Who sends: as said, else what the other two settings are for."""
        if self.upload_mode == "spool":
            return "none"
        if self.agent is not None:
            return self.agent
        return "thread" if self.upload_mode == "sync" or self.offline_dir is not None else "process"

    @classmethod
    def load(cls, environ: Mapping[str, str], **arguments: object) -> "Settings":
        """Settings from arguments (None: not given), then the environment, then the defaults.

        Raises:
            ConfigError: a value is not one; names the setting and the value.
        """
        values: dict[str, object] = {"home": data_folder(environ)}
        for name in (entry.name for entry in fields(cls)):
            setting = SETTINGS[name]
            given = arguments.get(name)
            if given is None and name != "home":
                given = environ.get(setting.variable) or None
            if given is not None:
                values[name] = READERS[name](setting, given)
        return cls(**values)  # pyright: ignore[reportArgumentType]  # each reader returns its field's type

    def check_together(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            ConfigError: two settings that cannot both hold; names both.
        """
        if self.upload_mode == "disabled":
            return
        mode, agent = self.upload_mode, self.agent
        if mode == "spool" and agent in ("process", "thread"):
            raise _contradiction(f"upload_mode is 'spool', which sends nothing, and agent is {agent!r}, which sends")
        if mode == "sync" and agent in ("process", "none"):
            raise _contradiction(f"upload_mode is 'sync', which a thread of this process sends, and agent is {agent!r}")
        if self.offline_dir is not None and agent == "process":
            what = "agent is 'process', which goes on sending what lies in a folder"
            raise _contradiction(
                f"offline_dir is {str(self.offline_dir)!r}, which keeps it for replay_offline(), and {what}"
            )
        if self.offline_dir is not None and self.spool not in (None, self.offline_dir):
            raise _contradiction(f"offline_dir is {str(self.offline_dir)!r} and spool is {str(self.spool)!r}")


def _contradiction(what: str) -> ConfigError:
    return ConfigError(f"{what}: leave one of the two out (each is an argument of init, or RANKSCOPE_<NAME>)")
