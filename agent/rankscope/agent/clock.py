"""Measures how far the clocks of this node's processes are from the gateways', and says so in their launches' diaries.

The agent asks each gateway what time it is, from a thread for each, and holds the answers against this boot's
monotonic clock. What is between that and the wall clock of a process stands in the header of any of its batches, so
one measurement is good for every process of the node. Nothing is changed by it: who reads applies it.
Promises: rows that are written at once have one time of the server, so that the clocks of two processes of a node
compare exactly; each clock is told of at least once a minute while its gateway answers, and at once where it is off by
more than was said; a process with another monotonic clock than the agent's is not told of.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from rankscope._block import Block, Column
from rankscope._clock_fit import ClockFit, Exchange, Fit
from rankscope._connection import Kind, failure_of
from rankscope._grpc import grpc
from rankscope._host import boot_id
from rankscope.agent.diary import Diaries
from rankscope.agent.neighbours import Neighbour
from rankscope.agent.ways import Recorded, Ways
from rankscope.errors import RankscopeError
from rankscope.spool import SpoolError, SpoolReader
from rankscope_proto.names import ProcessRole
from rankscope_proto.v1.ingest_pb2 import StandReply, StandRequest
from rankscope_proto.v1.ingest_pb2_grpc import IngestStub

FIRST_EXCHANGES = 8
"""Without a pause, so that the first batches of a run can be corrected, too."""

EXCHANGE_S = 2.0
TIMEOUT_S = 2.0
CLOSE_S = 0.5
MOST_KEYS = 8

EARLY_NS = 60 * 10**9
"""For so long it is said often what a clock does: its drift is not known yet."""

OFTEN_NS = 10 * 10**9
SELDOM_NS = 60 * 10**9
STALE_NS = 10 * 10**9
"""Where the last exchange is older nothing is said, so that whoever reads sees how long nobody measured."""

APART_NS = 10**9
"""The difference of wall and monotonic clock of two processes of a boot is the same, unless the wall clock was set
between their starts; or one of them has a monotonic clock of its own (a time namespace), which is off by more."""


class Ticker:
    """Asks one gateway for the time, again and again, from a thread of its own.

    Args:
        ways: How it is reached.
        recorded: Its address and how it is trusted, as a process was told.
        keys: API keys to try.

    Attributes:
        asked: Questions so far.
    """

    def __init__(self, ways: Ways, recorded: Recorded, *, keys: Sequence[str]) -> None:
        self._ways = ways
        self._recorded = recorded
        self._keys = tuple(keys)
        self.asked = 0
        self._denials = 0
        self._lock = threading.Lock()
        self._fits: dict[str, ClockFit] = {}
        self._found: dict[str, Fit] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-clock", daemon=True)
        self._thread.start()

    def learn(self, keys: Sequence[str]) -> None:
        """Try these API keys before those of earlier processes: a key may be revoked between two runs."""
        if not set(keys) <= set(self._keys):
            self._keys = tuple(dict.fromkeys((*keys, *self._keys)))[:MOST_KEYS]

    def fits(self) -> Mapping[str, Fit]:
        """What was found, by whose clock it is: several gateways may answer at one address."""
        with self._lock:
            return dict(self._found)

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the last question is over."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closed.is_set():
            is_answered = self._ask()
            self.asked += 1
            if not is_answered or self.asked >= FIRST_EXCHANGES:
                self._closed.wait(EXCHANGE_S)

    def _ask(self) -> bool:
        """One exchange; whether there was an answer that tells the time."""
        try:
            keys = self._keys
            key = keys[self._denials % len(keys)] if keys else None
            route = self._ways.connection(self._recorded).route(key)
            stub = IngestStub(route.channel)
            sent_ns = time.monotonic_ns()
            reply: StandReply = stub.Stand(StandRequest(), timeout=TIMEOUT_S, metadata=route.metadata)
            back_ns = time.monotonic_ns()
        except grpc.RpcError as error:
            self._denials += failure_of(error, "").kind is Kind.DENIED
            return False  # whoever sends batches there says what is wrong
        except (RankscopeError, ValueError):  # no gateway is known now; a channel that was closed meanwhile
            return False
        return self._take(reply.gateway, Exchange(sent_ns, reply.received_ns, reply.answered_ns, back_ns))

    def _take(self, gateway: str, exchange: Exchange) -> bool:
        if not gateway or exchange.received_ns == 0:
            return False  # an older one does not tell
        fit = self._fits.setdefault(gateway, ClockFit())
        if fit.add(exchange) and (found := fit.fit()) is not None:
            with self._lock:
                self._found[gateway] = found
        return True


@dataclass(slots=True)
class _Held:
    """A process whose clock is told of.

    Attributes:
        neighbour: Who it is.
        ahead_ns: Its wall clock minus this boot's monotonic one.
        tickers: The gateways that it may send to.
    """

    neighbour: Neighbour
    ahead_ns: int
    tickers: tuple[str, ...]


@dataclass(slots=True)
class _Told:
    """What was said last of a gateway's clock to a launch."""

    since_ns: int
    at_ns: int
    fit: Fit
    of: frozenset[bytes]


class Clocks:
    """Watches the clocks of the processes that the rounds come by.

    Args:
        ways: How gateways are reached.
        diaries: Take the rows.
    """

    def __init__(self, ways: Ways, diaries: Diaries) -> None:
        self._ways = ways
        self._diaries = diaries
        self._held: dict[bytes, _Held] = {}
        self._without: set[bytes] = set()
        self._tickers: dict[str, Ticker] = {}
        self._told: dict[tuple[str, ...], _Told] = {}

    def visit(self, neighbours: Sequence[Neighbour], /) -> None:
        """Get to know new processes, and say what their clocks do."""
        there = {one.head.incarnation: one for one in neighbours if _has_times(one)}
        self._without.intersection_update(there)
        for incarnation in self._held.keys() - there.keys():
            del self._held[incarnation]
        unmet = [one for one in there if one not in self._held and one not in self._without]
        self._let_go({name for one in unmet for name in self._meet(there[one])})
        self._tell()

    def close(self) -> None:
        """End the questions."""
        for ticker in self._tickers.values():
            ticker.close()
        deadline = time.monotonic() + CLOSE_S
        for ticker in self._tickers.values():
            ticker.join(max(0.0, deadline - time.monotonic()))

    def _meet(self, neighbour: Neighbour) -> tuple[str, ...]:
        """The gateways that it may send to."""
        tickers = self._tickers_of(neighbour)
        between = between_clocks(neighbour.folder)
        if between is None or not tickers:
            return tickers  # it has sealed nothing yet, or no gateway is known: asked again in a second
        if shares_clock(neighbour, between):
            self._held[neighbour.head.incarnation] = _Held(neighbour, between, tickers)
        else:
            self._without.add(neighbour.head.incarnation)
        return tickers

    def _tickers_of(self, neighbour: Neighbour) -> tuple[str, ...]:
        """The gateways of a process are asked before anything is known of its clock: it is soon known then."""
        recorded = Recorded.of(neighbour.head)
        found: list[str] = []
        for endpoint in self._ways.endpoints(recorded):
            alone = Recorded((endpoint,), recorded.trust)
            name, keys = repr(alone), self._ways.keys(neighbour.folder, recorded)
            if name in self._tickers:
                self._tickers[name].learn(keys)
            else:
                self._tickers[name] = Ticker(self._ways, alone, keys=keys)
            found.append(name)
        return tuple(found)

    def _let_go(self, met: set[str]) -> None:
        """Ask no gateway that no process here sends to any more; of those met in this round they are asked on."""
        if not self._held:
            return  # between two runs: the next one finds out at once what time it is
        used = met.union(*(held.tickers for held in self._held.values()))
        for name in self._tickers.keys() - used:
            self._tickers.pop(name).close()

    def _tell(self) -> None:
        by_launch: dict[tuple[str, ...], list[_Held]] = defaultdict(list)
        for held in self._held.values():
            launch = held.neighbour.launch
            for ticker in held.tickers:
                for gateway in self._tickers[ticker].fits():
                    by_launch[launch.project, launch.run_id, launch.launch_id.hex(), ticker, gateway].append(held)
        self._told = {key: told for key, told in self._told.items() if key in by_launch}
        for key, some in by_launch.items():
            fit = self._tickers[key[-2]].fits()[key[-1]]
            now_ns = time.monotonic_ns()
            if now_ns - fit.at_ns <= STALE_NS and self._is_due(key, fit, some=some, now_ns=now_ns):
                self._diaries.of(some[0].neighbour).append(rows(some, fit, now_ns=now_ns, server=key[-1]))

    def _is_due(self, key: tuple[str, ...], fit: Fit, *, some: Sequence[_Held], now_ns: int) -> bool:
        told = self._told.get(key)
        of = frozenset(one.neighbour.head.incarnation for one in some)
        if told is not None and of <= told.of and not _has_changed(told, fit, now_ns=now_ns):
            return False
        since_ns = now_ns if told is None else told.since_ns
        self._told[key] = _Told(since_ns, now_ns, fit, of)
        return True


def _has_changed(told: _Told, fit: Fit, *, now_ns: int) -> bool:
    every_ns = OFTEN_NS if told.at_ns - told.since_ns < EARLY_NS else SELDOM_NS
    is_off = abs(fit.base_at(now_ns) - told.fit.base_at(now_ns)) > told.fit.error_ns
    return now_ns - told.at_ns >= every_ns or is_off or 2 * fit.error_at(now_ns) < told.fit.error_ns


def _has_times(neighbour: Neighbour) -> bool:
    return neighbour.head.process_role in {ProcessRole.TRAINER.code, ProcessRole.WORKER.code}


def between_clocks(folder: Path) -> int | None:
    """A process's wall clock minus its monotonic one, in ns, as any of its batches says; None: there is none."""
    try:
        reader = SpoolReader(folder)
    except (OSError, SpoolError):
        return None
    try:
        frame = reader.next(0)
        header = None if frame is None else frame.header
        return None if header is None or not header.sealed else header.sealed - header.sealed_mono
    except (OSError, SpoolError, DecodeError):
        return None
    finally:
        reader.close()


def shares_clock(neighbour: Neighbour, between_ns: int) -> bool:
    """Whether a process's monotonic clock is this one's.

    Args:
        neighbour: The process.
        between_ns: Its wall clock minus its monotonic one.
    """
    if not neighbour.head.boot_id or neighbour.head.boot_id != boot_id():
        return False
    if neighbour.is_near:
        try:
            return Path(f"/proc/{neighbour.head.pid}/ns/time").readlink() == Path("/proc/self/ns/time").readlink()
        except OSError:  # another user's process, or a kernel without them
            pass
    return abs(between_ns - (time.time_ns() - time.monotonic_ns())) < APART_NS


def rows(some: Sequence[_Held], fit: Fit, *, now_ns: int, server: str) -> Block:
    """Rows of `clocks` for these processes: all of one moment.

    Args:
        some: The processes.
        fit: The server's clock against this boot's monotonic one.
        now_ns: The moment, on the monotonic clock.
        server: Whose clock it is.
    """
    count, base_ns = len(some), fit.base_at(now_ns)
    columns: dict[str, Column] = {
        "time": [now_ns + one.ahead_ns for one in some],
        "of_hi": [int.from_bytes(one.neighbour.head.incarnation[:8], "big") for one in some],
        "of_lo": [int.from_bytes(one.neighbour.head.incarnation[8:], "big") for one in some],
        "offset": [base_ns - one.ahead_ns for one in some],
        "error": (fit.error_at(now_ns),) * count,
        "rtt": (fit.rtt_ns,) * count,
        "samples": (fit.samples,) * count,
        "server": (server,) * count,
    }
    if fit.drift is not None:
        columns["drift"] = (fit.drift,) * count
    return Block("clocks", count, columns)
