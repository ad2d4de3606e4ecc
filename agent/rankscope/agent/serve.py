"""The agent as a process: one a root, until it is told to end or, where a rank started it, until nothing is left to do.

Promises: it outlives its trainers and the signals to them; told to end, it drains for at most 25 s and leaves the rest
on the disk, where the next one finds it; where nothing happens it looks once a second and does no more.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from rankscope._attach import AGENT_FILE
from rankscope._connection import Connection
from rankscope._host import process_start
from rankscope._settings import Settings
from rankscope._version import __version__
from rankscope.agent.carrier import Carrier
from rankscope.agent.clock import Clocks
from rankscope.agent.complaints import Complaints
from rankscope.agent.diary import Diaries
from rankscope.agent.reception import Reception
from rankscope.agent.rounds import Rounds, Visitor
from rankscope.agent.sampler.visitor import Sampler
from rankscope.agent.stacks import Stacks
from rankscope.agent.standings import Standings
from rankscope.agent.ways import Recorded, ways_of
from rankscope.errors import RankscopeError
from rankscope.spool import FolderLock, SpoolError, SpoolHead, SpoolHeldError, stage_out

LOCK = "agent.lock"

TICK_S = 1.0
EXPECTING_S = 0.1
DRAIN_S = 25.0
"""Kubernetes and Slurm kill 30 s after SIGTERM."""

DRAIN_STALL_S = 10.0
"""Told to end, with no trainer left, it waits no longer for a gateway that takes nothing."""

IDLE_STALL_S = 30.0
LINGER_S = 2.0
FIRST_GUEST_S = 15.0
"""How long an agent that a rank started waits for that rank to come."""


class Front(Protocol):
    """A way in beside the ranks: takes data by a protocol of its own, and puts it into spools of the root."""

    def start(self) -> None:
        """Settle what was left, before anything is sent from the root's spools; then take data."""
        ...

    def close(self) -> None:
        """Take no more, and append what was taken; the second time does nothing."""
        ...


class AgentHeldError(RankscopeError):
    """Another agent serves the root."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How an agent runs.

    Attributes:
        settings: Root of the spools, certificates, and the key and gateways for spools without their own.
        exit_when_idle: Whether it ends when no trainer lives and nothing is left to send.
        stage_out: Folder for what could not be sent when it ends; None: it stays in the spools.
        sample_s: Seconds between two samples of the node's figures; None: there are none.
    """

    settings: Settings
    exit_when_idle: bool = False
    stage_out: Path | None = None
    sample_s: float | None = None

    @property
    def root(self) -> Path:
        """The folder of the spools."""
        return self.settings.spool_root


class Agent:
    """Serves one root.

    Args:
        options: How it runs.

    Raises:
        AgentHeldError: another agent serves the root; names it.
        SpoolError: the root cannot be written.
    """

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._front: Front | None = None
        self._root = root = options.root
        _make(root)
        self._lock = FolderLock(root / LOCK)
        try:
            self._lock.take()
        except SpoolHeldError as error:
            raise AgentHeldError(f"an agent serves {root} already: {_who(root)}") from error
        _sweep(root)
        _raise_file_limit()
        self._complaints = Complaints()
        self._ways = ways_of(options.settings)
        self._carrier = Carrier(root, self._ways, complaints=self._complaints)
        self._diaries = Diaries(root, complaints=self._complaints, any_file_system=options.settings.spool_any_fs)
        self._rounds = Rounds(root, self._diaries, visitors=self._visitors(), complaints=self._complaints)
        self._awake = threading.Event()
        self._stop_at: float | None = None
        self._is_cut_short = False
        self._began_at = self._busy_at = time.monotonic()
        self._had_guests = False
        self._reception = Reception(self._desk, status=self.status, on_attach=self._welcome)

    def run(self, *, front: Front | None = None, on_ready: Callable[[], object] = lambda: None) -> None:
        """Serve until it is over; what the store has not by then stays in the spools.

        Args:
            front: A way in beside the ranks, open from before anything is sent until it is told to end.
            on_ready: Called once it serves.
        """
        self._front = front
        try:
            if front is not None:
                front.start()
            self._publish()
            self._rounds.start()
            on_ready()
            while not self._turn():
                self._awake.wait(self._pause_s())
                self._awake.clear()
        finally:
            self._close()
        self._stage_out()

    def stop(self) -> None:
        """Drain, then end; the second time: end now. Safe in a signal handler."""
        self._is_cut_short = self._stop_at is not None
        if self._stop_at is None:
            self._stop_at = time.monotonic()
        self._awake.set()

    def status(self) -> Mapping[str, object]:
        """How things stand."""
        reports = self._carrier.reports()
        return {
            "pid": os.getpid(),
            "version": __version__,
            "root": str(self._root),
            "trainers": self._reception.trainers,
            "waiting": self._carrier.waiting,
            "backlog_bytes": sum(report.backlog_bytes for report in reports),
            "spools": [asdict(report) for report in reports],
        }

    def _visitors(self) -> Sequence[Visitor]:
        """Who looks at the processes of this node, and writes into their launches' diaries (`self._diaries`)."""
        every_s = self._options.sample_s
        sampling = () if every_s is None else (Sampler(self._diaries, every_s=every_s, complaints=self._complaints),)
        return (Standings(self._diaries, Stacks()), Clocks(self._ways, self._diaries), *sampling)

    def _welcome(self) -> None:
        self._had_guests = True
        self._awake.set()

    def _pause_s(self) -> float:
        # Who has attached makes a spool next.
        return TICK_S if self._reception.trainers <= self._carrier.sent else EXPECTING_S

    def _turn(self) -> bool:
        """Look at everything once; whether it is over."""
        stop_at = self._stop_at  # what was spooled before the signal is looked at after it
        if stop_at is not None and self._front is not None:
            self._front.close()  # what it took is in the spools before they are looked at
        opened = self._diaries.opened
        self._carrier.tick()
        # A diary opened since is not known to the carrier yet.
        return self._is_over(stop_at) and opened == self._diaries.opened

    def _is_over(self, stop_at: float | None) -> bool:
        now = time.monotonic()
        has_trainers = self._reception.trainers > 0 or self._carrier.has_live
        is_through = self._carrier.is_through
        if has_trainers or not is_through:
            self._busy_at = now
        if stop_at is not None:
            return self._is_drained(now - stop_at, is_through=is_through, has_trainers=has_trainers)
        if not self._options.exit_when_idle or has_trainers:
            return False
        stall_s = now - max(self._carrier.moved_at, self._began_at)
        patience_s = LINGER_S if self._had_guests else FIRST_GUEST_S
        return stall_s > IDLE_STALL_S if not is_through else now - self._busy_at > patience_s

    def _is_drained(self, waited_s: float, *, is_through: bool, has_trainers: bool) -> bool:
        if self._is_cut_short or waited_s >= DRAIN_S:
            return True
        stall_s = time.monotonic() - self._carrier.moved_at
        return not has_trainers and (is_through or min(stall_s, waited_s) > DRAIN_STALL_S)

    def _desk(self, incarnation: bytes) -> tuple[Connection, Callable[[], str | None]]:
        folder = self._root / incarnation.hex()
        try:
            recorded = Recorded.of(SpoolHead.read(folder))
        except SpoolError:
            recorded = Recorded()
        return self._ways.connection(recorded), lambda: next(iter(self._ways.keys(folder, recorded)), None)

    def _publish(self) -> None:
        found = {
            "pid": os.getpid(),
            "process_start": process_start(os.getpid()),
            "socket": str(self._reception.path),
            "version": __version__,
        }
        draft = self._root / f".{AGENT_FILE}.{os.getpid()}"
        draft.write_text(json.dumps(found))
        draft.replace(self._root / AGENT_FILE)

    def _close(self) -> None:
        if self._front is not None:
            self._front.close()
        # A trainer that comes now finds no agent, and starts the next one.
        with contextlib.suppress(OSError):
            (self._root / AGENT_FILE).unlink()
        self._reception.close()
        self._rounds.close()
        self._diaries.close()
        self._carrier.close()
        self._ways.close()
        self._lock.release()

    def _stage_out(self) -> None:
        if self._options.stage_out is not None:
            stage_out(self._root, self._options.stage_out)


def stop_on_signals(agent: Agent) -> None:
    """Have SIGTERM and SIGINT end an agent in order."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        agent.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _make(root: Path) -> None:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SpoolError(f"{root} cannot be made ({error.strerror}): name another folder with --spool") from error


def _raise_file_limit() -> None:
    """A few files a spool, many spools: the usual limit of 1,024 is for programs that select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _who(root: Path) -> str:
    try:
        return f"process {int(json.loads((root / AGENT_FILE).read_text())['pid'])}"
    except (OSError, ValueError, TypeError, KeyError):
        return "a process that is starting or ending"


def _sweep(root: Path) -> None:
    """Remove what an agent that was killed left: its file, and the folder of its socket."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        socket_folder = Path(str(json.loads((root / AGENT_FILE).read_text())["socket"])).parent
        (root / AGENT_FILE).unlink()
        if socket_folder.name.startswith("rankscope-"):
            shutil.rmtree(socket_folder, ignore_errors=True)
