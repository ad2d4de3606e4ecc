"""`rankscope up` as a user has it: ready or not, in the foreground or not, and nothing left behind."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope import _discovery
from rankscope.up import Client
from tests.cli.programs import rankscope
from tests.ground.processes import Child, alive, answers, descendants, python, wait_until
from tests.ground.stacks import Stack, clean_environ

ANY_PORTS = ("--query-port", "0", "--gateway-port", "0", "--http-port", "0")


class Server:
    """A `rankscope up` of its own, in the foreground."""

    def __init__(self, home: Path, logs: Path, *options: str) -> None:
        self.home = home
        self.child = Child(
            python("rankscope", "up", *(options or ANY_PORTS)),
            name="foreground",
            folder=logs,
            environ=clean_environ(RANKSCOPE_HOME=str(home)),
        )
        self.child.await_that(lambda: _discovery.read(home) is not None, what="get ready")
        found = _discovery.read(home)
        assert found
        self.found = found
        self.processes = {self.child.pid, *descendants(self.child.pid)}

    @property
    def ports(self) -> list[int]:
        addresses = (self.found.query, self.found.gateway, self.found.ingest)
        return [int(address.rpartition(":")[2]) for address in addresses]

    def is_gone(self) -> bool:
        return not any(alive(pid) for pid in self.processes) and not any(answers(port) for port in self.ports)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "home", tmp_path)
    yield running
    running.child.stop()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that do it no harm."""
    folder = tmp_path_factory.mktemp("lasting")
    running = Server(folder / "home", folder)
    yield running
    running.child.stop()


def socket_of(server: Server) -> Path:
    """Where its broker listens: the broker shows it as its title."""
    titles = [Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0 ") for pid in server.processes]
    (socket_path,) = [title.partition("unixsocket:")[2] for title in titles if "unixsocket:" in title]
    return Path(socket_path)


def test_a_ready_server_answers_and_tells_where_and_what_next(lasting: Server) -> None:
    runs = Client(lasting.found.query).get("/runs")

    said = lasting.child.output()
    assert runs["items"] == []
    assert lasting.found.query in said
    assert lasting.found.gateway in said
    assert lasting.found.ingest in said
    assert str(lasting.home) in said
    assert "rankscope demo" in said
    assert lasting.found.pid == lasting.child.pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_ends_it_in_order_and_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    server = Server(tmp_path / "home", tmp_path)
    sockets = socket_of(server).parent

    server.child.signal(number)
    status = server.child.wait()

    assert status == 0
    assert server.is_gone()
    assert not (server.home / "up.json").exists()
    assert not sockets.exists()


def test_a_killed_server_takes_its_children_along_and_the_next_one_starts(server: Server, tmp_path: Path) -> None:
    server.child.signal(signal.SIGKILL)
    server.child.wait()

    wait_until(server.is_gone, what="the children have ended")
    again = Server(server.home, tmp_path)
    again.child.stop()

    assert again.is_gone()


def test_when_one_part_fails_the_others_are_stopped_and_it_is_named(server: Server) -> None:
    (gateway,) = [
        pid for pid in descendants(server.child.pid) if b"gateway" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]

    os.kill(gateway, signal.SIGKILL)
    status = server.child.wait()

    assert status == 1
    assert "error: gateway failed: " in server.child.output()
    assert "SIGKILL" in server.child.output()
    assert server.is_gone()


def test_a_second_server_in_the_same_folder_says_who_has_it(lasting: Server) -> None:
    answer = rankscope("up", *ANY_PORTS, "--json", home=lasting.home)
    detached = rankscope("up", *ANY_PORTS, "--detach", "--json", home=lasting.home)

    assert (answer.status, detached.status) == (1, 1)
    assert answer.error["code"] == detached.error["code"] == "folder_held"
    assert f"process {lasting.child.pid}" in answer.error["message"]


def test_busy_ports_are_replaced_by_the_next_free_ones_and_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        wanted = [word for name in ("query", "gateway", "http") for word in (f"--{name}-port", str(port))]
        server = Server(tmp_path / "home", tmp_path, *wanted)
        server.child.stop()

    query, gateway, ingest = server.ports
    assert port < query < gateway < ingest
    assert f"port {port} is busy: the HTTP ingest listens on {ingest}" in server.child.output()
    assert f"port {port} is busy: the query service listens on {query}" in server.child.output()
    assert f"port {port} is busy: the gateway listens on {gateway}" in server.child.output()


@pytest.mark.parametrize("waits", [["--wait-ready"], []])
def test_a_detached_server_says_that_a_port_is_busy(waits: list[str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        ports = ("--query-port", "0", "--gateway-port", str(port), "--http-port", "0")
        started = rankscope("up", *ports, "--detach", *waits, "--json", home=home).json
        try:
            wait_until(lambda: _discovery.read(home) is not None, what="the server is ready", timeout_s=60)
            found = _discovery.read(home)
        finally:
            os.kill(started["pid"], signal.SIGTERM)
            wait_until(lambda: not alive(started["pid"]), what="it has ended")

    assert found
    assert started["moved"] == [f"port {port} is busy: the gateway listens on {found.gateway.rpartition(':')[2]}"]


def test_a_detached_server_is_ready_when_the_command_returns_and_lives_on(tmp_path: Path) -> None:
    home = tmp_path / "home"

    started = rankscope("up", *ANY_PORTS, "--detach", "--wait-ready", "--json", home=home).json
    try:
        doctor = rankscope("doctor", "--json", home=home).json["environment"]

        assert os.getsid(started["pid"]) == started["pid"]
        assert doctor["server"] == {
            "query": started["query"],
            "gateway": started["gateway"],
            "pid": started["pid"],
            "problem": None,
        }
        assert doctor["data_folder"]["holder"]["pid"] == started["pid"]
    finally:
        os.kill(started["pid"], signal.SIGTERM)
        wait_until(lambda: not alive(started["pid"]), what="it has ended")
    assert Path(started["log"]).exists()


def test_a_detached_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "broker").mkdir(parents=True)
    (home / "broker" / "appendonlydir").touch()  # where the broker makes a folder

    answer = rankscope("up", *ANY_PORTS, "--detach", "--wait-ready", "--json", home=home)

    assert answer.status == 1
    assert "broker failed: " in answer.error["message"]


def test_with_json_a_ready_server_prints_one_document(tmp_path: Path) -> None:
    server = Server(tmp_path / "home", tmp_path, *ANY_PORTS, "--json")
    server.child.stop()

    ready = json.loads(server.child.output())

    assert ready["query"] == server.found.query
    assert ready["gateway"] == server.found.gateway
    assert ready["home"] == str(server.home)
    assert ready["moved"] == []


def test_without_home_and_terminal_it_starts_in_a_temporary_folder(tmp_path: Path) -> None:
    environ = {"HOME": "", "RANKSCOPE_HOME": "", "XDG_DATA_HOME": "", "TMPDIR": str(tmp_path)}

    started = rankscope("up", *ANY_PORTS, "--detach", "--wait-ready", "--json", home=tmp_path, environ=environ).json
    os.kill(started["pid"], signal.SIGTERM)
    wait_until(lambda: not alive(started["pid"]), what="it has ended")

    assert started["home"].startswith(str(tmp_path))


def test_dead_letters_are_looked_for_in_the_broker_of_the_running_server(stack: Stack) -> None:
    answer = rankscope("dlq", "ls", "--json", home=stack.home)

    assert (answer.status, answer.stderr) == (0, "")
    assert answer.json["items"] == []
