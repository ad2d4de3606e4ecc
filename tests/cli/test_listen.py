"""`rankscope up --listen`: other nodes are served with keys and TLS, this machine's users as ever."""

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from rankscope import _discovery
from rankscope.up import Access, Client, RefusedError, UnreachableError
from rankscope_proto.keys import KeyRing, Scope
from tests.agent.front.clients import body, whole
from tests.cli.programs import rankscope
from tests.ground.certificates import Authority, Pair
from tests.ground.processes import Child, alive, answers, descendants, python, wait_until
from tests.ground.stacks import clean_environ

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is tested is who gets in then
ANY_PORTS = ("--query-port", "0", "--gateway-port", "0", "--http-port", "0")

RUN, OVER_HTTP = "far", "far-over-http"
"""What other tests record in the server they share, before or after."""

TRAINER = """
import sys, rankscope
run = rankscope.init(run_id=sys.argv[1])
with run.trace("from elsewhere"):
    pass
run.finish(wait="durable", timeout=60)
"""


class Server:
    """A `rankscope up --listen ADDRESS` in the foreground, with what it said when it was ready."""

    def __init__(self, home: Path, logs: Path, *options: str) -> None:
        self.home = home
        self.child = Child(
            python("rankscope", "up", *ANY_PORTS, "--json", *options),
            name="listening",
            folder=logs,
            environ=clean_environ(RANKSCOPE_HOME=str(home)),
        )
        self.child.await_that(lambda: _discovery.read(home) is not None, what="get ready")
        self.child.await_that(lambda: self.child.output().rstrip().endswith("}"), what="say so")
        self.told: dict[str, Any] = json.loads(self.child.output())

    @property
    def url(self) -> str:
        """The public query service by a name that its certificate has."""
        return f"https://localhost:{self.told['public_query'].rpartition(':')[2]}"

    @property
    def endpoint(self) -> str:
        return f"https://localhost:{self.told['public_gateway'].rpartition(':')[2]}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Pair:
    return authority.signed("server")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: Pair) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("listening")
    tls = ("--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key))
    running = Server(folder / "home", folder, "--listen", EVERYWHERE, *tls, "--retention", "30")
    yield running
    running.child.stop()


@pytest.fixture
def access(server: Server, authority: Authority) -> Access:
    return Access(key=server.told["key"], ca=str(authority.ca))


def test_the_first_key_opens_it_for_sending_and_reading(server: Server) -> None:
    principal = KeyRing(server.home / "keys.json").principal(server.told["key"])

    assert principal is not None
    assert principal.scopes == {Scope.INGEST, Scope.READ}
    assert (server.home / "keys.json").stat().st_mode & 0o777 == 0o600


def test_from_elsewhere_a_key_and_the_authority_are_needed(server: Server, access: Access) -> None:
    runs = Client(server.url, access=access).get("/runs")

    assert {run["run_id"] for run in runs["items"]} <= {RUN, OVER_HTTP}
    with pytest.raises(RefusedError) as refused:
        Client(server.url, access=replace(access, key="")).get("/runs")
    assert refused.value.status == 401
    with pytest.raises(UnreachableError, match="certificate verify failed"):
        Client(server.url, access=replace(access, ca="")).get("/runs")
    with pytest.raises(UnreachableError):
        Client(server.url.replace("https", "http")).get("/runs")


def test_on_the_machine_itself_nothing_changes(server: Server) -> None:
    found = _discovery.read(server.home)
    assert found

    assert {run["run_id"] for run in Client(found.query).get("/runs")["items"]} <= {RUN, OVER_HTTP}
    assert rankscope("runs", "--json", home=server.home).status == 0
    assert found.query.startswith("http://127.0.0.1:")
    assert server.told["query"] == found.query


def test_events_from_elsewhere_come_over_http_with_the_key(server: Server, access: Access) -> None:
    url = f"https://localhost:{server.told['public_ingest'].rpartition(':')[2]}"
    trusted = ssl.create_default_context(cafile=access.ca)

    def send(key: str) -> int:
        headers = {"Idempotency-Key": "1", "Authorization": f"Bearer {key}"}
        path = f"{url}/api/runs/{OVER_HTTP}/traces/events"
        return httpx.post(path, content=body(*whole()), headers=headers, verify=trusted, timeout=30).status_code

    assert (send(access.key), send("none")) == (200, 401)
    assert httpx.post(f"{server.told['ingest']}/api/runs/{OVER_HTTP}/traces/events").status_code == 400
    reader = Client(server.url, access=access)
    wait_until(lambda: OVER_HTTP in [run["run_id"] for run in reader.get("/runs")["items"]], what="the run is stored")


PASSING = {"open_spans", "standings"}
"""Tables whose rows are of a moment, and expire after a day whatever was said."""


def test_rows_are_kept_for_as_long_as_was_said(server: Server) -> None:
    found = _discovery.read(server.home)
    assert found

    tables = Client(found.query).get("/storage")["tables"]

    assert {table["retention_days"] for table in tables if table["table"] not in PASSING} == {30}


def test_a_trainer_elsewhere_sends_with_its_key(server: Server, access: Access, tmp_path: Path) -> None:
    environ = clean_environ(
        RANKSCOPE_HOME=str(tmp_path),
        RANKSCOPE_ENDPOINT=server.endpoint,
        RANKSCOPE_KEY=access.key,
        RANKSCOPE_TLS_CA=access.ca,
        RANKSCOPE_AGENT="thread",
    )

    done = subprocess.run(
        [sys.executable, "-c", TRAINER, RUN], env=environ, check=False, capture_output=True, text=True, timeout=120
    )
    doctor = rankscope(
        "doctor",
        RUN,
        "--json",
        home=tmp_path,
        environ={
            "RANKSCOPE_URL": server.url,
            "RANKSCOPE_KEY": access.key,
            "RANKSCOPE_TLS_CA": access.ca,
        },
    )

    assert done.returncode == 0, done.stderr
    assert doctor.json["completeness"]["state"] == "complete"
    assert access.key not in done.stdout + done.stderr + doctor.stdout + doctor.stderr


def test_a_key_is_in_no_command_line_of_the_server(server: Server) -> None:
    processes = {server.child.pid, *descendants(server.child.pid)}

    assert len(processes) >= 4
    for pid in processes:
        assert server.told["key"].encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for log in server.home.glob("*.log"):
        assert server.told["key"] not in log.read_text()


def test_in_the_background_it_says_the_key_and_keeps_it_out_of_its_log(certificate: Pair, tmp_path: Path) -> None:
    home = tmp_path / "home"
    tls = ("--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key))
    options = ("--listen", "::", *tls, "--detach", "--wait-ready", "--json")

    started = rankscope("up", *ANY_PORTS, *options, home=home).json
    try:
        log = Path(started["log"]).read_text()
    finally:
        os.kill(started["pid"], signal.SIGTERM)
        wait_until(lambda: not alive(started["pid"]), what="it has ended")
    again = rankscope("up", *ANY_PORTS, *options, home=home).json
    os.kill(again["pid"], signal.SIGTERM)
    wait_until(lambda: not alive(again["pid"]), what="it has ended")

    assert KeyRing(home / "keys.json").principal(started["key"]) is not None
    assert started["key"] not in log
    assert again["key"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--listen", EVERYWHERE], "without TLS"),
        (["--listen", f"{EVERYWHERE}:8470"], "it is an address only"),
        (["--listen", "node-7"], "is no address"),
        (["--listen", EVERYWHERE, "--tls-cert", "nowhere.pem"], "TLS cannot be set up"),
        (["--listen", "127.0.0.1", "--tls-key", "nowhere.pem"], "go with --tls-cert"),
    ],
)
def test_what_could_not_be_served_is_refused_before_anything_starts(
    options: list[str], words: str, tmp_path: Path
) -> None:
    answer = rankscope("up", *ANY_PORTS, *options, home=tmp_path / "home")

    assert answer.status == 2
    assert words in answer.stderr
    assert not (tmp_path / "home" / "keys.json").exists()


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    answer = rankscope("up", *ANY_PORTS, "--listen", "192.0.2.1", "--insecure", home=tmp_path / "home")

    assert answer.status == 1
    assert "192.0.2.1 is no address of this machine" in answer.stderr


def test_insecure_serves_plain_text_to_those_with_a_key(tmp_path: Path) -> None:
    server = Server(tmp_path / "home", tmp_path, "--listen", EVERYWHERE, "--insecure")
    port = int(server.told["public_query"].rpartition(":")[2])
    try:
        runs = Client(f"http://127.0.0.1:{port}", access=Access(key=server.told["key"])).get("/runs")
        with pytest.raises(RefusedError) as refused:
            Client(f"http://127.0.0.1:{port}").get("/runs")
    finally:
        server.child.stop()

    assert runs["items"] == []
    assert refused.value.status == 401
    assert not answers(port)
