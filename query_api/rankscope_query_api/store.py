"""What the query service asks of a store, as Protocols.

One contract for all methods: a project is part of every question and no row of another project is ever in an answer;
a run that is not there reads as no rows; lists are in a stated total order and a `Slice` continues exactly after the
key it is given, which its last row made; integers are range-checked before they are bound; a failure is a
`QueryError`, and nothing of a failed answer shows up in a later one.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rankscope_query_api.answers import Key
from rankscope_query_api.clock_reading import ClockReader
from rankscope_query_api.failing import FailureReader
from rankscope_query_api.keeping import FindingKeeper
from rankscope_query_api.limits import Asker
from rankscope_query_api.nonfinite import NonfiniteReader
from rankscope_query_api.rank_store import CollectiveReader, MeetingReader
from rankscope_query_api.standing import StandingReader
from rankscope_query_api.step_rows import StepTreeReader
from rankscope_query_api.trace_store import (
    SpanExporter,
    SpanWindowReader,
    TraceDetailReader,
    TraceReader,
    TraceStepReader,
)
from rankscope_query_api.values import (
    CaptureFilter,
    ChunkPlace,
    Digest,
    Launch,
    LedgerEntry,
    Process,
    ProfileFilter,
    Record,
    RunKey,
    RunSummary,
    Slice,
    StepTimes,
    StorageState,
    Table,
    TensorFilter,
    Value,
)

RUN_KEY = (int, str)
"""Shape of the key of `runs`."""

POINT_KEY = (int, int, int, str, int, int)
"""Shape of the key of `metric_points`."""

STEP_KEY = (int, str)
"""Shape of the key of `steps`."""

RUNS_WITH_GAPS_TOLD = 20
"""Most runs whose gaps are told where a whole project is asked: what is read to tell them has a bound."""

TENSOR_KEY = (int, int, int, int, int, int, int, str)
"""Shape of the key of `tensors`."""


class RunReader(Protocol):
    """Runs, their processes and launches, their metrics and gaps."""

    async def run_ids(self, project: str) -> Sequence[str]:
        """Up to 1,000 run ids, for suggestions; the latest first."""
        ...

    async def runs(self, project: str, *, limit: int, after: Key | None) -> Slice[RunSummary]:
        """Runs by (start, run id), the latest first; key (started_ns, run_id)."""
        ...

    async def processes(self, project: str, runs: Sequence[str], *, config: bool) -> Sequence[Process]:
        """Every process of these runs; `config`: with configuration, command line and facts, which may be long."""
        ...

    async def launches(self, key: RunKey) -> Sequence[Launch]:
        """The launches by time; none: the project has no such run."""
        ...

    async def gaps(self, key: RunKey, *, sections: Sequence[str], step: int | None = None) -> Sequence[Record]:
        """Stated absences of these sections (none named: of all) that touch the step, summed by cause."""
        ...

    async def has_gaps(self, key: RunKey) -> bool:
        """Whether the run states any absence."""
        ...

    async def gaps_of_project(
        self, project: str, *, sections: Sequence[str], step: int | None = None
    ) -> Sequence[Record]:
        """The same of all runs, each with its `run_id`; of the `RUNS_WITH_GAPS_TOLD` runs with the latest of them."""
        ...

    async def events(self, key: RunKey, *, limit: int) -> Sequence[Record]:
        """Warnings, errors, rank conflicts and alerts, the latest first."""
        ...

    async def open_spans(self, key: RunKey) -> Sequence[Record]:
        """The stacks of each process' last heartbeat, by rank; rows are kept for a day."""
        ...

    async def last_step(self, key: RunKey) -> int | None:
        """The greatest step that a step trace has; None: there is no step yet."""
        ...

    async def metric_names(self, key: RunKey) -> Sequence[Record]:
        """The run's metrics by name, with points, ranks, first and last step and the last value."""
        ...

    async def metric_points(self, key: RunKey, name: str, *, limit: int, after: Key | None) -> Slice[Record]:
        """One metric's points by (rank, step, time, row key)."""
        ...


class SpanReader(Protocol):
    """Steps and their spans."""

    async def steps(self, key: RunKey, *, launch: str | None, limit: int, after: Key | None) -> Slice[Record]:
        """Steps by (step, launch id): ranks, least, median and greatest duration, slowest rank."""
        ...

    async def launches_of_step(self, key: RunKey, step: int) -> Mapping[str, int]:
        """Launch ids whose step traces have this step, with their world size."""
        ...

    async def step_spans(self, key: RunKey, launch: str, *, step: int, rank: int) -> Table:
        """One rank's spans of a step's trace by (start, span_id): narrow columns, no payloads."""
        ...

    async def step_times(self, key: RunKey, launch: str, *, steps: int, cells: int) -> Sequence[StepTimes]:
        """Phase times by (step, rank) of the last `steps` steps, at most `cells` rows, whole steps."""
        ...


class TensorReader(Protocol):
    """Tensor statistics."""

    async def tensors(self, key: RunKey, where: TensorFilter, *, limit: int, after: Key | None) -> Slice[Record]:
        """Rows in TQL's total order: (step, microstep, phase, row in its process, rank, row key)."""
        ...

    async def nonfinite(self, key: RunKey, launch: str, *, step: int, limit: int) -> Slice[Record]:
        """The tensors with non-finite values at a step of a launch, in TQL's total order."""
        ...


class CaptureReader(Protocol):
    """Kept tensor values; of what several ranks have sent alike, one copy."""

    async def captures(self, key: RunKey, where: CaptureFilter, *, limit: int, after: Key | None) -> Slice[Record]:
        """What was kept, by (step, time, rank, row key), without its bytes."""
        ...

    async def whole(self, key: RunKey, digests: Sequence[Digest]) -> frozenset[Digest]:
        """Those of these contents that have every chunk."""
        ...

    async def named(self, key: RunKey, digest: Digest, *, where: CaptureFilter) -> Sequence[Record]:
        """For each type and shape in which a content was kept the first such row; of up to two."""
        ...

    async def places(self, key: RunKey, digest: Digest) -> Sequence[ChunkPlace]:
        """Where the chunks of a content are, in order; only those that there are."""
        ...

    async def chunks(self, key: RunKey, digest: Digest, *, places: Sequence[ChunkPlace]) -> Sequence[bytes]:
        """The bytes of these chunks, in order; at most 16 at a time."""
        ...


class ModelReader(Protocol):
    """The watched model, and statistics of its tensors over ranks."""

    async def launches(self, key: RunKey, *, of_tensors: bool) -> Sequence[str]:
        """Ids of the launches that described a model, or have statistics of tensors."""
        ...

    async def modules(self, key: RunKey, launch: str, *, limit: int) -> Sequence[Record]:
        """The modules as they were described last, in the order of the model.

        Each is there once for every description of it that ranks differ in, what most ranks say first; `ranks` are
        those that say it.
        """
        ...

    async def last_step(self, key: RunKey, launch: str, *, statistic: str, role: int) -> int | None:
        """The last step that has a statistic of tensors of a role; None: there is none."""
        ...

    async def profile(
        self, key: RunKey, launch: str, *, statistic: str, where: ProfileFilter, limit: int
    ) -> Sequence[Record]:
        """One row a step and tensor, by (step, name), with the sums over its ranks that `profiles` puts together."""
        ...


class LedgerReader(Protocol):
    """What arrived and what should have."""

    async def entries(self, key: RunKey) -> Sequence[LedgerEntry]:
        """One entry per incarnation of the run, by (rank, incarnation)."""
        ...


class StorageReader(Protocol):
    """What the store takes, over all projects."""

    async def state(self) -> StorageState:
        """The size, growth and retention of each table, and the room on the disks."""
        ...


class TraceStore(Protocol):
    """Everything the query service reads; see the module for what holds for all of it."""

    @property
    def runs(self) -> RunReader:
        """Runs, launches, metrics, gaps."""
        ...

    @property
    def traces(self) -> TraceReader:
        """Traces as rows of a list."""
        ...

    @property
    def detail(self) -> TraceDetailReader:
        """One trace."""
        ...

    @property
    def window(self) -> SpanWindowReader:
        """What is around one span."""
        ...

    @property
    def trace_steps(self) -> TraceStepReader:
        """Traces by step."""
        ...

    @property
    def export(self) -> SpanExporter:
        """All finished spans."""
        ...

    @property
    def spans(self) -> SpanReader:
        """Steps and their spans."""
        ...

    @property
    def step_trees(self) -> StepTreeReader:
        """What the rows of a step come to."""
        ...

    @property
    def tensors(self) -> TensorReader:
        """Tensor statistics."""
        ...

    @property
    def captures(self) -> CaptureReader:
        """Kept tensor values."""
        ...

    @property
    def model(self) -> ModelReader:
        """The watched model."""
        ...

    @property
    def collectives(self) -> CollectiveReader:
        """Collectives as ranks sent them."""
        ...

    @property
    def meetings(self) -> MeetingReader:
        """Collectives over their ranks."""
        ...

    @property
    def ledger(self) -> LedgerReader:
        """What arrived and what should have."""
        ...

    @property
    def clocks(self) -> ClockReader:
        """How far processes' clocks are from a server's."""
        ...

    @property
    def failing(self) -> FailureReader:
        """Which processes failed."""
        ...

    @property
    def findings(self) -> FindingKeeper:
        """What rules found."""
        ...

    @property
    def nonfinite(self) -> NonfiniteReader:
        """Where non-finite values came up."""
        ...

    @property
    def standing(self) -> StandingReader:
        """Where processes stand."""
        ...

    @property
    def storage(self) -> StorageReader:
        """What the store takes."""
        ...

    async def delete(self, key: RunKey) -> Mapping[str, int]:
        """Deletes a run from every table, the ledger last; returns once its rows are gone, with their number by table.

        A deletion that failed midway leaves the run in the ledger, and is done again.
        """
        ...

    async def query(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """Runs a compiled TQL query, which carries its project and run in itself."""
        ...

    def asked_by(self, asker: Asker, *, is_foreign: bool) -> "TraceStore":
        """The same store with the asker's limits and share of it.

        Args:
            asker: Who asks.
            is_foreign: It reads for every project what it reads for one that does not exist.
        """
        ...

    async def ping(self) -> None:
        """Returns when the store answers and has the tables; raises StoreUnavailableError otherwise."""
        ...

    async def close(self) -> None:
        """Lets go of everything; the store cannot be asked any more."""
        ...
