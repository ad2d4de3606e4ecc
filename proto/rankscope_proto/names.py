"""The words of the contract: every closed vocabulary that crosses a process boundary.

A member's position in its enumeration is its code on the wire and in the tables: the first
member has code 1, and 0 means "not stated". Members are only ever appended, never moved
(`tests/proto` pins the codes). Tables hold the code as `UInt8`, so a newer writer's value
passes an older reader; the `*_named` read views hold the name.

rank: global, 0-based. local_rank: within the node. node: a host. run: one job. launch: one
start of a run. step: an optimizer step, 0-based. span: a named interval on one rank. trace:
a tree of spans; a training step's trace has one id on all ranks.
"""

import functools
from enum import StrEnum


class Code(StrEnum):
    """A vocabulary whose members have stable integer codes, counted from 1."""

    @property
    def code(self) -> int:
        """The member's code on the wire and in the tables (1-based)."""
        return list(type(self)).index(self) + 1

    @classmethod
    @functools.cache  # of 256 codes at most; asked five times for each span that is shown
    def of(cls, code: int) -> str:
        """The name of a code; a code newer than this build reads as its number."""
        members = list(cls)
        if code == 0:
            return ""
        return members[code - 1].value if 1 <= code <= len(members) else str(code)


class SpanKind(Code):
    """What a span is, for filters and counts."""

    ROLLOUT = "rollout"
    ENV_STEP = "env_step"
    MODEL = "model"
    TOOL = "tool"
    RETRIEVAL = "retrieval"
    REWARD = "reward"
    EVALUATOR = "evaluator"
    DATASET = "dataset"
    PREPROCESSING = "preprocessing"
    POSTPROCESSING = "postprocessing"
    CHECKPOINT = "checkpoint"
    ARTIFACT = "artifact"
    SYSTEM = "system"
    CUSTOM = "custom"


class SpanStatus(Code):
    """How a span ended."""

    OK = "ok"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


class Phase(Code):
    """Part of a training step; the codes are the order in which a step runs them."""

    INPUT = "input"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"


class Role(Code):
    """What a tensor is."""

    WEIGHT = "weight"
    GRAD = "grad"
    ACTIVATION = "activation"
    ACTIVATION_GRAD = "activation_grad"
    UPDATE = "update"
    OPTIMIZER_STATE = "optimizer_state"
    BUFFER = "buffer"
    GRAD_INCREMENT = "grad_increment"


class LayerType(StrEnum):
    """The semantic type of a module, guessed from its class and path."""

    ATTENTION = "attention"
    MLP = "mlp"
    NORM = "norm"
    EMBEDDING = "embedding"
    CONV = "conv"
    MOE = "moe"
    ROUTER = "router"
    EXPERT = "expert"
    HEAD = "head"
    OTHER = "other"


class ProcessRole(Code):
    """What a process does in the run."""

    TRAINER = "trainer"
    WORKER = "worker"
    ACTOR = "actor"
    SERVER = "server"
    CLIENT = "client"
    LAUNCHER = "launcher"
    AGENT = "agent"


class RunStatus(Code):
    """Where one process of a run stands."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Severity(Code):
    """How much an event matters."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Capture(Code):
    """Whether a span kept previews of its payloads."""

    OFF = "off"
    PREVIEW = "preview"


class RedactionState(Code):
    """What redaction did to a span's previews."""

    NOTHING_TO_REDACT = "nothing_to_redact"
    REDACTED = "redacted"


class GapClass(Code):
    """Lost: rows that were emitted. Not captured: rows that never were."""

    LOST = "lost"
    NOT_CAPTURED = "not_captured"


class GapCause(StrEnum):
    """Why rows are absent; the first eight belong to `lost`, the rest to `not_captured`."""

    RING_FULL = "ring_full"
    SPOOL_FULL = "spool_full"
    SPOOL_CORRUPT = "spool_corrupt"
    OVERSIZE = "oversize"
    QUARANTINED = "quarantined"
    CONFLICT = "conflict"
    TAIL_UNKNOWN = "tail_unknown"
    EXPIRED = "expired"
    LEVEL = "level"
    SAMPLED = "sampled"
    BUDGET = "budget"
    PAUSED = "paused"
    UNSUPPORTED = "unsupported"


class EventKind(StrEnum):
    """Events the system itself writes, or a span has; users may write others."""

    END_OF_STREAM = "end_of_stream"
    RANK_CONFLICT = "rank_conflict"
    ALERT = "alert"
    SPAN_EVENT = "span_event"
    STEP_SKIPPED = "step_skipped"
    FINDING = "finding"


SPAN_FLAGS = {"interrupted": 1, "truncated": 2, "recompute": 4, "in_step_trace": 8}
"""Bits of `spans.flags`."""

TENSOR_FLAGS = {
    "scaled": 1,
    "unscaled": 2,
    "local": 4,
    "reduced": 8,
    "recompute": 16,
    "sampled": 32,
    "skipped": 64,
}
"""Bits of `tensor_stats.flags`. scaled: still multiplied by the loss scale; local: before, and
reduced: after data-parallel reduction; sampled: from a sample of the elements; skipped: of a step whose
update the loss scaler left out."""

COLLECTIVE_FLAGS = {"enqueued": 1, "async": 2, "p2p": 4, "interrupted": 8}
"""Bits of `collectives.flags`. enqueued: times of the host are when it was put into a device's queue; async: the
caller did not wait for it; p2p: between two ranks; interrupted: it ended with an error."""
