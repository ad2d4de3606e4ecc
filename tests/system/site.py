"""All tiers of production at one place, each a process of its own, so that each can be killed, frozen or cut off.

Sources write into a spool with the SDK, one agent ships it, gateway, broker and writer pass it on, and chDB behind
its HTTP front stores it: writer and store are separate, as with a server. Nothing here waits longer than a process
takes to start; what must hold afterwards is the oracles' business.
"""

import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import redis

from rankscope_proto.identity import SHARDS
from tests.ground.brokers import Broker
from tests.ground.processes import Child, alive, answers, free_port, python, wait_until
from tests.ground.proxy import Proxy
from tests.ground.stacks import clean_environ
from tests.ground.stores import FrontProcess, Store
from tests.system.oracles import Report, judge, peak_memory
from tests.system.tables import tables_of
from tests.system.truth import truth_of

DRAIN_S = 90.0
STREAM = "rankscope:{{s{shard:02}}}:in"


class Part:
    """A process of the site: its command stays, its lives come and go.

    Attributes:
        name: `gateway`, `writer`, `agent` or a source's; messages and the log's file carry it.
        lives: How often it was started.
        peak: Its most resident memory over all lives, bytes, as far as it was looked at.
    """

    def __init__(self, name: str, command: list[str | Path], *, folder: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self.lives = self.peak = 0
        self.environ = dict(environ)
        self._command = command
        self._folder = folder
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        """Its present or last life; it has been started."""
        assert self._child is not None
        return self._child

    @property
    def pid(self) -> int:
        """The process id of its present life."""
        return self.child.pid

    @property
    def is_running(self) -> bool:
        """Whether it lives now."""
        return self._child is not None and self._child.returncode is None

    def start(self, **more: str) -> None:
        """Begins a life, with more variables for this one; does not wait."""
        self.lives += 1
        self._child = Child(self._command, name=self.name, folder=self._folder, environ={**self.environ, **more})

    def kill(self) -> None:
        """Ends its life with SIGKILL."""
        self.note_memory()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.child.wait()

    def freeze(self) -> None:
        """Stops it where it is."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a frozen one go on."""
        os.kill(self.pid, signal.SIGCONT)

    def note_memory(self) -> None:
        """Looks at its memory."""
        self.peak = max(self.peak, peak_memory(self.pid))

    def output(self) -> str:
        """What it said over all its lives."""
        return self.child.output()

    def stop(self, timeout_s: float = 20.0) -> None:
        """Ends it in order."""
        if self._child is not None and self.is_running:
            with suppress(ProcessLookupError):
                self.resume()
            self._child.stop(timeout_s)


class Site:
    """The tiers, their addresses and their folders.

    Args:
        folder: Where everything lies.
        run: The run of every source.
        settings: Variables for every process.
        mutant: A defect of `tests.system.mutants` that the processes are started with; empty: none.

    Attributes:
        front: chDB behind HTTP.
        store: A database of it.
        broker: The broker.
        links: Proxies in front of `gateway`, `broker` and `store`; healed at the start.
        parts: The other processes by name.
        ledgers: Folder of the sources' outside ledgers.
        spool: The node's spool.
    """

    def __init__(
        self, folder: Path, *, run: str = "chaos", settings: Mapping[str, str] | None = None, mutant: str = ""
    ) -> None:
        self.run = run
        self.folder = folder
        self.ledgers, self.spool = folder / "ledgers", folder / "spool"
        for made in (self.ledgers, folder / "broker", folder / "store"):
            made.mkdir()
        self.parts: dict[str, Part] = {}
        self._mutant = mutant
        self._gateway_port = free_port()
        self.front = FrontProcess(folder / "store")
        self.store = Store(self.front.url)
        self.broker = Broker(folder / "broker")
        self.broker.start()
        self.links = {
            "store": Proxy(f"127.0.0.1:{self.front.port}"),
            "broker": Proxy(self.broker.socket),
            "gateway": Proxy(f"127.0.0.1:{self._gateway_port}"),
        }
        self.environ = self._environment(settings or {})

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        store = self.store.url.replace(str(self.front.port), str(self.links["store"].port))
        return clean_environ(
            RANKSCOPE_HOME=str(self.folder / "home"),
            RANKSCOPE_REDIS_URL=f"redis://{self.links['broker'].address}",
            RANKSCOPE_CLICKHOUSE_URL=store,
            RANKSCOPE_MIGRATE="1",
            RANKSCOPE_SPOOL=str(self.spool),
            RANKSCOPE_ENDPOINT=self.links["gateway"].address,
            RANKSCOPE_RUN_ID=self.run,
            RANKSCOPE_QUIET="1",
            **settings,
        )

    def add_gateway(self, *, name: str = "gateway", port: int = 0, **more: str) -> Part:
        """A gateway, started and listening; the first one is behind the link."""
        port = port or self._gateway_port
        environ = {**self.environ, "RANKSCOPE_GATEWAY_LISTEN": f"127.0.0.1:{port}", **more}
        part = self._add(name, self._command("gateway"), environ=environ)
        part.child.await_that(lambda: answers(port), what="listen")
        return part

    def add_writer(self, *, name: str = "writer", **more: str) -> Part:
        """A writer, started and past its migrations."""
        part = self._add(name, self._command("writer"), environ={**self.environ, **more})
        part.child.await_that(self.is_migrated, what="make the tables")
        return part

    def add_agent(self, *, name: str = "agent", **more: str) -> Part:
        """The node's agent, started."""
        return self._add(name, self._command("agent"), environ={**self.environ, **more})

    def add_source(self, rank: int, *, world_size: int = 2, **more: str) -> Part:
        """A trainer of a rank, started; it leaves the shipping to the site's agent."""
        name = f"source-{rank}"
        environ = {
            **self.environ,
            "RANKSCOPE_AGENT": "none",
            "RANKSCOPE_RANK": str(rank),
            "RANKSCOPE_WORLD_SIZE": str(world_size),
            **more,
        }
        return self._add(name, python("tests.system.sources", name, self.ledgers), environ=environ)

    def add_all(self, *, sources: int = 2) -> None:
        """One of each, and some sources."""
        self.add_writer()
        self.add_gateway()
        self.add_agent()
        for rank in range(sources):
            self.add_source(rank, world_size=sources)

    def _command(self, tier: str) -> list[str | Path]:
        if self._mutant:
            return python("tests.system.mutants", self._mutant, tier)
        return python("rankscope", tier)

    def _add(self, name: str, command: list[str | Path], *, environ: Mapping[str, str]) -> Part:
        part = self.parts[name] = Part(name, command, folder=self.folder, environ=environ)
        part.start()
        return part

    def is_migrated(self) -> bool:
        """Whether the newest tables are there."""
        return bool(self.store.client.command("EXISTS TABLE landing_probe"))

    def finish_sources(self) -> None:
        """Tells every source to end, and waits for it; each must end with 0."""
        (self.ledgers / "stop").touch()
        for part in self.parts.values():
            if part.name.startswith("source"):
                status = part.child.wait(60)
                assert status == 0, f"{part.name} ended with {status}:\n{part.output()[-3000:]}"

    def let_sources_go_on(self) -> None:
        """Takes the order to end back."""
        (self.ledgers / "stop").unlink(missing_ok=True)

    def await_drained(self, timeout_s: float = DRAIN_S) -> None:
        """Returns when no spool has anything to send and the broker holds nothing.

        Raises:
            TimeoutError: Something is left; says what.
        """
        try:
            wait_until(lambda: not self.spools() and not self.entries(), timeout_s=timeout_s, what="an empty spool")
        except TimeoutError as error:
            left = f"{len(self.spools())} spools, {self.entries()} entries in the broker"
            ends = "\n".join(f"--- {name}\n{part.output()[-1500:]}" for name, part in self.parts.items())
            raise TimeoutError(f"{error}; left: {left}\n{ends}") from None

    def spools(self) -> list[Path]:
        """Spools that still hold something."""
        return sorted(self.spool.glob("*/spool.json"))

    def entries(self) -> int:
        """Entries that the broker holds, in all shards; -1: it does not answer."""
        try:
            with self.broker.client() as client:
                return sum(int(str(client.xlen(STREAM.format(shard=shard)))) for shard in range(SHARDS))
        except redis.RedisError:
            return -1

    def judge(self) -> Report:
        """The oracles' word on what is stored now."""
        return judge(truth_of(self.ledgers), tables_of(self.store.client, self.run))

    def stored(self) -> int:
        """Scalars stored of the run."""
        query = "SELECT count() FROM scalars WHERE run_id = {run:String}"
        return int(self.store.client.query(query, parameters={"run": self.run}).result_rows[0][0])

    def await_stored(self, more_than: int, *, timeout_s: float = 60.0) -> None:
        """Returns when more scalars than that are stored."""
        wait_until(lambda: self.stored() > more_than, timeout_s=timeout_s, what=f"more than {more_than} rows")

    def doctor(self) -> tuple[int, dict[str, object]]:
        """The exit code of `rankscope doctor RUN --json` and what it answered."""
        port = free_port()
        listen = f"127.0.0.1:{port}"
        service = self._add("query", python("rankscope", "query-service"), environ=self._queried(listen))
        service.child.await_that(lambda: answers(port), what="listen")
        command = python("rankscope", "doctor", self.run, "--url", f"http://{listen}", "--json")
        asked = Child(command, name="doctor", folder=self.folder, environ=self.environ)
        status = asked.wait(60)
        service.stop()
        text = asked.output()
        return status, dict(json.loads(text[text.index("{") : text.rindex("}") + 1]))

    def _queried(self, listen: str) -> dict[str, str]:
        return {**self.environ, "RANKSCOPE_CLICKHOUSE_URL": self.store.url, "RANKSCOPE_QUERY_LISTEN": listen}

    def peaks(self) -> dict[str, int]:
        """The most resident memory of each kind of process."""
        found: dict[str, int] = {}
        for part in self.parts.values():
            if part.is_running:
                part.note_memory()
            kind = part.name.split("-")[0]
            found[kind] = max(found.get(kind, 0), part.peak)
        return found

    def stop(self) -> None:
        """Ends everything; nothing is left when this returns."""
        for name in sorted(self.parts, key=lambda name: not name.startswith("source")):
            self.parts[name].stop(timeout_s=3)
        for link in self.links.values():
            link.stop()
        self.broker.stop()
        self.front.stop()
        strays = [pid for pid in (self._stray_agent(),) if pid and alive(pid)]
        for pid in strays:
            os.kill(pid, signal.SIGKILL)

    def _stray_agent(self) -> int:
        """The agent that a source started itself, where it was not told to leave that."""
        try:
            found = int(json.loads((self.spool / "agent.json").read_text())["pid"])
            return found if str(self.spool) in Path(f"/proc/{found}/environ").read_text() else 0
        except (OSError, ValueError, KeyError):
            return 0
