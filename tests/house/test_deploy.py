"""The image's health check tells a tier that answers from one that does not."""

import runpy
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tests.ground.certificates import Authority
from tests.house.tree import ROOT

CHECK = runpy.run_path(str(ROOT / "deploy/health.py"))


class Ready(BaseHTTPRequestHandler):
    """Answers `/readyz` only."""

    def do_GET(self) -> None:
        self.send_response(204 if self.path == "/readyz" else 404)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keeps the test's output quiet."""


@pytest.fixture
def gateway_port() -> Iterator[tuple[int, health.HealthServicer]]:
    servicer = health.HealthServicer()
    server = grpc.server(ThreadPoolExecutor(1))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port, servicer
    server.stop(None).wait()


@pytest.fixture
def query_port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_gateway_is_asked_by_the_health_protocol(gateway_port: tuple[int, health.HealthServicer]) -> None:
    port, servicer = gateway_port
    assert CHECK["ask_gateway"](port) == "SERVING"

    servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)

    with pytest.raises(ConnectionError, match=f"port {port} says NOT_SERVING"):
        CHECK["ask_gateway"](port)


def test_a_query_service_is_asked_whether_it_is_ready(query_port: int) -> None:
    assert CHECK["ask_query_service"](query_port) == "204"


def test_the_tier_is_known_by_its_command_and_its_port_by_its_setting(
    query_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_QUERY_LISTEN", f"0.0.0.0:{query_port}")

    assert CHECK["ask"](["python", "/opt/rankscope/bin/rankscope", "query-service", ""]) == "204"
    assert CHECK["ask"](["python", "/opt/rankscope/bin/rankscope", "writer", ""]) == "listens nowhere"


def test_a_tier_behind_tls_shakes_hands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Authority(tmp_path).signed("server")
    server = grpc.server(ThreadPoolExecutor(1))
    credentials = grpc.ssl_server_credentials([(pair.key.read_bytes(), pair.cert.read_bytes())])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    monkeypatch.setenv("RANKSCOPE_TLS_CERT", str(pair.cert))
    monkeypatch.setenv("RANKSCOPE_GATEWAY_LISTEN", f"0.0.0.0:{port}")

    assert CHECK["ask"](["rankscope", "gateway", ""]) == "TLSv1.3"
    server.stop(None).wait()
    with pytest.raises(OSError, match="refused"):
        CHECK["ask"](["rankscope", "gateway", ""])


def test_systemd_finds_nothing_wrong_with_the_agents_unit() -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze is installed")

    done = subprocess.run(
        [program, "verify", "--man=no", str(ROOT / "deploy/rankscope-agent.service")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_port_where_nothing_answers_is_an_error(query_port: int) -> None:
    # An HTTP server is no gateway.
    with pytest.raises(grpc.RpcError):
        CHECK["ask_gateway"](query_port)
