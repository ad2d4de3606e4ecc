"""All tiers of production at one place, each a process of its own, so that each can be killed, frozen or cut off.

One agent ships what lies in the node's spool, gateway, broker and writer pass it on, and chDB behind its HTTP front
stores it: writer and store are separate, as with a server. Three links lie between them and can be made to misbehave.
A site outlives a test; what a test records in it is a `Trial`, with a run of its own.
"""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import redis

from rankscope_ingest.broker_keys import lease_key
from rankscope_proto.identity import SHARDS
from tests.ground.brokers import Broker
from tests.ground.processes import Child, answers, free_port, python, wait_until
from tests.ground.proxy import Fault, Proxy
from tests.ground.stacks import clean_environ
from tests.ground.stores import FrontProcess, Store
from tests.system.parts import Part

STREAM = "rankscope:{{s{shard:02}}}:in"


class Site:
    """The tiers, their addresses and their folders.

    Args:
        folder: Where everything lies.
        settings: Variables for every process.
        mutant: A defect of `tests.system.mutants` that the processes are started with; empty: none.
        spool: The node's spool; default: in the folder.
        data: Where the store keeps its data; default: in the folder.

    Attributes:
        front: chDB behind HTTP.
        store: A database of it.
        broker: The broker.
        links: Proxies in front of `gateway`, `broker` and `store`; healed at the start.
        parts: The other processes by name.
        spool: The node's spool.
        environ: What every process gets.
        launcher: What a tier's name is added to.
        source_program: What a source's name and folder are added to.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        mutant: str = "",
        spool: Path | None = None,
        data: Path | None = None,
    ) -> None:
        self.folder, self.spool = folder, spool or folder / "spool"
        data = data or folder / "store"
        for made in (folder / "broker", data):
            made.mkdir(parents=True)
        self.parts: dict[str, Part] = {}
        self.launcher = python("tests.system.mutants", mutant) if mutant else python("rankscope")
        self.source_program = python("tests.system.sources")
        self._gateway_port = free_port()
        self.front = FrontProcess(data)
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
        told = {
            "RANKSCOPE_HOME": str(self.folder / "home"),
            "RANKSCOPE_REDIS_URL": f"redis://{self.links['broker'].address}",
            "RANKSCOPE_CLICKHOUSE_URL": self.store.url.replace(str(self.front.port), str(self.links["store"].port)),
            "RANKSCOPE_MIGRATE": "1",
            "RANKSCOPE_SPOOL": str(self.spool),
            "RANKSCOPE_ENDPOINT": self.links["gateway"].address,
            "RANKSCOPE_QUIET": "1",
        }
        return clean_environ(**{**told, **settings})

    def add_gateway(self, *, name: str = "gateway", listen: str = "", **more: str) -> Part:
        """A gateway, started and listening; without an address it is the one behind the link."""
        listen = listen or f"127.0.0.1:{self._gateway_port}"
        part = self.add(name, self.command("gateway"), RANKSCOPE_GATEWAY_LISTEN=listen, **more)
        part.child.await_that(lambda: answers(int(listen.rpartition(":")[2])), what="listen")
        return part

    def add_writer(self, *, name: str = "writer", **more: str) -> Part:
        """A writer, started and past its migrations."""
        part = self.add(name, self.command("writer"), **more)
        part.child.await_that(self._is_migrated, what="make the tables")
        return part

    def add_agent(self, *, name: str = "agent", **more: str) -> Part:
        """The node's agent, started; nobody's rows but the ranks', unless it is told to sample."""
        return self.add(name, self.command("agent"), **{"RANKSCOPE_SAMPLE": "off", **more})

    def add_tiers(self) -> None:
        """One writer, one gateway, one agent."""
        self.add_writer()
        self.add_gateway()
        self.add_agent()

    def command(self, tier: str) -> list[str | Path]:
        """The command of a tier."""
        return [*self.launcher, tier]

    def add(self, name: str, command: list[str | Path], /, **more: str) -> Part:
        """Any process, with the site's environment and more; started."""
        part = self.parts[name] = Part(name, command, folder=self.folder, environ={**self.environ, **more})
        part.start()
        return part

    def remove(self, name: str) -> None:
        """Ends a part for good."""
        self.parts.pop(name).stop()

    def heal(self) -> None:
        """Lets links pass, parts run and the broker and the store answer, whatever a test left."""
        for link in self.links.values():
            link.heal()
        if not self.broker.is_running:
            self.broker.start()
        if not self.front.is_running:
            self.front.start()
        self.front.await_ready()
        self.front.answer_inserts(0, times=0)
        for part in self.parts.values():
            if part.is_running:
                part.resume()
            else:
                part.start()
        for part in self.parts.values():
            self._await_standing(part)

    def _await_standing(self, part: Part) -> None:
        """Returns when a part does its work.

        A tier that began its life before the broker or the store listened says so and ends; its supervisor starts it
        again, and so does this.
        """

        def stands() -> bool:
            if not part.is_running:
                part.start()
            match part.name:
                case "gateway":
                    return answers(self._gateway_port)
                case "writer":
                    return self._holds_shards(part.pid)
                case _:
                    return True

        wait_until(stands, timeout_s=60, what=f"{part.name} at work")

    def _holds_shards(self, pid: int) -> bool:
        with self.broker.client() as client:
            shown = [cast("bytes | None", client.hget(lease_key(shard), "shown")) for shard in range(SHARDS)]
        return any(json.loads(text)["pid"] == pid for text in shown if text)

    def _is_migrated(self) -> bool:
        return bool(self.store.client.command("EXISTS TABLE landing_probe"))

    def entries(self) -> int:
        """Entries that the broker holds, in all shards; -1: it does not answer."""
        try:
            with self.broker.client() as client:
                return sum(int(str(client.xlen(STREAM.format(shard=shard)))) for shard in range(SHARDS))
        except redis.RedisError:
            return -1

    def flush(self) -> None:
        """FLUSHALL: what an operator's mistake does."""
        with self.broker.client() as client:
            client.flushall()

    def black_hole(self, link: str) -> None:
        """Lets nothing pass a link, while its connections stand."""
        self.links[link].set(Fault(is_half_open=True))

    def doctor(self, run: str) -> tuple[int, dict[str, Any]]:
        """The exit code of `rankscope doctor RUN --json` and what it answered."""
        port = free_port()
        listen = f"127.0.0.1:{port}"
        name = f"query-{port}"
        service = self.add(
            name,
            python("rankscope", "query-service"),
            RANKSCOPE_CLICKHOUSE_URL=self.store.url,
            RANKSCOPE_QUERY_LISTEN=listen,
        )
        service.child.await_that(lambda: answers(port), what="listen")
        command = python("rankscope", "doctor", run, "--url", f"http://{listen}", "--json")
        asked = Child(command, name=f"doctor-{port}", folder=self.folder, environ=self.environ)
        try:
            status = asked.wait(90)
        finally:
            asked.stop()
            self.remove(name)
        text = asked.output()
        return status, dict(json.loads(text[text.index("{") : text.rindex("}") + 1]))

    def peaks(self) -> dict[str, int]:
        """The most resident memory of each kind of process, bytes."""
        found: dict[str, int] = {}
        for part in self.parts.values():
            if part.is_running:
                part.note_memory()
            kind = part.name.split("-")[0]
            found[kind] = max(found.get(kind, 0), part.peak)
        return found

    def said(self) -> str:
        """The end of what each part said, for a failing test's message."""
        return "\n".join(f"--- {name}\n{part.output()[-1500:]}" for name, part in self.parts.items())

    def stop(self) -> None:
        """Ends everything; nothing is left when this returns."""
        for name in sorted(self.parts, key=lambda name: not name.startswith("source")):
            self.parts[name].stop(timeout_s=3)
        for link in self.links.values():
            link.stop()
        self.broker.stop()
        self.front.kill()
        self._end_stray_agents()

    def _end_stray_agents(self) -> None:
        """Ends the agents that sources started themselves, where they were not told to leave that."""
        for told in (*self.folder.glob("spool-*/agent.json"), self.spool / "agent.json"):
            try:
                found = int(json.loads(told.read_text())["pid"])
                is_ours = str(told.parent) in Path(f"/proc/{found}/environ").read_text()
            except (OSError, ValueError, KeyError):
                continue
            if is_ours:
                os.kill(found, signal.SIGKILL)
