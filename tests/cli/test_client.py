"""The HTTP client of the base install: plain answers, errors with their place, no proxy on this machine."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rankscope.up import BadUrlError, Client, RefusedError, UnreachableError
from rankscope.up._client import is_loopback
from tests.ground.processes import free_port

UNKNOWN = {"code": "unknown_run", "message": "no run 'new'", "hint": ""}


class Answers(BaseHTTPRequestHandler):
    """Answers each path in its own way."""

    asked = 0

    def do_GET(self) -> None:
        Answers.asked += 1
        if self.path.startswith("/api/v1/runs/new"):
            there = Answers.asked > 2
            self.answer(200 if there else 404, json.dumps({"asked": Answers.asked} if there else UNKNOWN))
            return
        if self.path.startswith("/api/v1/echo"):
            self.answer(200, json.dumps({"path": self.path}))
        elif self.path == "/api/v1/list":
            self.answer(200, "[]")
        elif self.path == "/api/v1/garbage":
            self.answer(200, "<html>")
        elif self.path == "/api/v1/bad":
            self.answer(400, json.dumps({"code": "bad", "message": "no", "hint": "yes"}))
        else:
            self.answer(404, "gone")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, json.dumps({"got": json.loads(body), "type": self.headers["Content-Type"]}))

    def answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - says nothing
        """Nothing on stderr."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Client(f"http://127.0.0.1:{server.server_port}", timeout_s=10)
    server.shutdown()
    thread.join()
    server.server_close()


def test_parameters_are_encoded_and_absent_ones_left_out(client: Client) -> None:
    answer = client.get("/echo", project="a b&c", after=None, limit=3)

    assert answer == {"path": "/api/v1/echo?project=a+b%26c&limit=3"}


def test_a_body_travels_as_json(client: Client) -> None:
    answer = client.post("/any", {"query": "é"})

    assert answer == {"got": {"query": "é"}, "type": "application/json"}


def test_an_error_keeps_its_status_code_message_and_hint(client: Client) -> None:
    with pytest.raises(RefusedError, match="no") as refused:
        client.get("/bad")

    assert (refused.value.status, refused.value.code, refused.value.hint) == (400, "bad", "yes")


def test_an_error_that_is_not_ours_still_has_a_message(client: Client) -> None:
    with pytest.raises(RefusedError, match="HTTP 404") as refused:
        client.get("/gone")

    assert refused.value.code == "not_found"


@pytest.mark.parametrize("path", ["/list", "/garbage"])
def test_an_answer_of_something_else_is_no_answer(client: Client, path: str) -> None:
    with pytest.raises(UnreachableError):
        client.get(path)


def test_a_run_that_is_not_there_yet_is_asked_for_again(client: Client) -> None:
    Answers.asked = 0
    patient = Client(client.url, patience_s=60)

    assert patient.get("/runs/new") == {"asked": 3}


@pytest.mark.parametrize(("path", "patience_s"), [("/runs/new", 0.0), ("/gone", 60.0)])
def test_what_will_not_come_or_is_not_waited_for_is_refused_at_once(
    client: Client, path: str, patience_s: float
) -> None:
    Answers.asked = 0

    with pytest.raises(RefusedError):
        Client(client.url, patience_s=patience_s).get(path)

    assert Answers.asked == 1


def test_where_nobody_listens_the_address_and_the_setting_are_named() -> None:
    port = free_port()

    with pytest.raises(UnreachableError, match=f"127.0.0.1:{port} is not reachable") as refused:
        Client(f"http://127.0.0.1:{port}").get("/runs")

    assert "RANKSCOPE_URL" in refused.value.hint


def test_a_proxy_does_not_see_what_stays_on_this_machine(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")

    assert client.get("/echo")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8470", True),
        ("http://localhost:8470", True),
        ("http://[::1]:8470", True),
        ("http://10.0.0.1", False),
        ("https://rankscope.example", False),
    ],
)
def test_loopback_is_told_from_elsewhere(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


@pytest.mark.parametrize(
    "url",
    [
        "http://bob:s3cr3t@127.0.0.1:1",
        "http://bob:s3cr3t/x@127.0.0.1",
        "bob:s3cr3t@127.0.0.1",
        "http://u:s3cr3t@[::1",
        "http://u:s3cr3t@h:abc",
        "http://h?password=s3cr3t",
        "http://h#s3cr3t",
        "ftp://h",
        "http://h:99999",
        "http://h:0",
        "127.0.0.1:8470",
        "",
    ],
)
def test_what_is_no_url_of_a_query_service_is_refused_without_telling_its_secrets(url: str) -> None:
    with pytest.raises(BadUrlError) as refused:
        Client(url)

    assert "s3cr3t" not in str(refused.value)
    assert "http://127.0.0.1:8470" in refused.value.hint
