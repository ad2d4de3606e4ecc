"""What the command line's client shows of its key, and to whom."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rankscope.errors import ConfigError
from rankscope.up import Access, Client, PlainTextKeyError, RefusedError, exposure_fault
from tests.cli.programs import rankscope

KEY = "rsk_0123abcd_" + "s3cr3t" * 7 + "x"


class Listening(BaseHTTPRequestHandler):
    """Notes the key that each request brings; sends those for /moved elsewhere, and refuses all when it is told to."""

    heard: list[str | None]
    elsewhere: str
    refuses: bool

    def do_GET(self) -> None:
        self.heard.append(self.headers["Authorization"])
        status = 401 if self.refuses else 307 if self.path == "/api/v1/moved" else 200
        body = json.dumps({"code": "unauthenticated", "message": "no", "hint": None, "items": []}).encode()
        self.send_response(status)
        if status == 307:
            self.send_header("Location", self.elsewhere)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - says nothing
        """Nothing on stderr."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listening)
    Listening.heard, Listening.refuses = [], False
    Listening.elsewhere = f"http://127.0.0.1:{server.server_port}/api/v1/elsewhere"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_key_goes_along_as_a_bearer(url: str) -> None:
    Client(url, access=Access(key=KEY)).get("/runs")
    Client(url).get("/runs")

    assert Listening.heard == [f"Bearer {KEY}", None]


def test_a_redirection_is_not_followed_and_shown_no_key(url: str) -> None:
    with pytest.raises(RefusedError) as refused:
        Client(url, access=Access(key=KEY)).get("/moved")

    assert refused.value.status == 307
    assert len(Listening.heard) == 1


@pytest.mark.parametrize("url", ["http://10.0.0.1:8470", "http://node-7:8470", "http://127.0.0.1.example:8470"])
def test_a_key_never_travels_in_plain_text_beyond_loopback(url: str) -> None:
    with pytest.raises(PlainTextKeyError, match="plain text") as refused:
        Access(key=KEY).headers(url)

    assert "s3cr3t" not in str(refused.value)
    assert Access(key=KEY, is_insecure=True).headers(url) == {"Authorization": f"Bearer {KEY}"}
    assert Access().headers(url) == {}
    assert Access(key=KEY).headers(url.replace("http", "https")) == {"Authorization": f"Bearer {KEY}"}


def test_the_refusal_reaches_the_command_line_and_tells_no_key(tmp_path: Path) -> None:
    answer = rankscope("runs", "--url", "http://192.0.2.1:8470", home=tmp_path, environ={"RANKSCOPE_KEY": KEY})

    assert answer.status == 1
    assert "rsk_0123abcd_***" in answer.stderr
    assert "RANKSCOPE_INSECURE" in answer.stderr
    assert "s3cr3t" not in answer.stderr


@pytest.mark.parametrize("key", ["two words", "rsk_\nInjected: header", "ключ"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_told(key: str) -> None:
    with pytest.raises(ConfigError, match="RANKSCOPE_KEY is no API key") as refused:
        Access.from_environ({"RANKSCOPE_KEY": key})

    assert key not in str(refused.value)


def test_settings_come_from_the_environment_and_the_key_is_in_no_repr() -> None:
    environ = {"KEY": f" {KEY}\n", "TLS_CA": "ca.pem", "TLS_CERT": "cert.pem", "TLS_KEY": "key.pem", "INSECURE": "1"}

    access = Access.from_environ({f"RANKSCOPE_{name}": value for name, value in environ.items()})

    assert access == Access(KEY, "ca.pem", "cert.pem", "key.pem", is_insecure=True)
    assert "s3cr3t" not in repr(access)
    assert "s3cr3t" not in repr(Client("http://127.0.0.1:1", access=access))


@pytest.mark.parametrize(
    ("access", "words"),
    [
        (Access(ca="nowhere.pem"), "RANKSCOPE_TLS_CA is 'nowhere.pem'"),
        (Access(cert="nowhere.pem"), "RANKSCOPE_TLS_CERT is 'nowhere.pem'"),
    ],
)
def test_a_certificate_that_cannot_be_read_is_named(access: Access, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Client("https://127.0.0.1:1", access=access).get("/runs")


def test_a_certificate_that_cannot_be_read_is_a_wrong_call(tmp_path: Path) -> None:
    answer = rankscope("runs", "--url", "https://127.0.0.1:1", home=tmp_path, environ={"RANKSCOPE_TLS_CA": "nowhere"})

    assert answer.status == 2
    assert "RANKSCOPE_TLS_CA" in answer.stderr


def test_doctor_tells_of_a_key_that_would_be_read_on_the_way_and_shows_none(tmp_path: Path) -> None:
    url = "http://192.0.2.1:8470"

    answer = rankscope("doctor", "--url", url, "--json", home=tmp_path, environ={"RANKSCOPE_KEY": KEY})

    assert answer.status == 1
    assert "plain text" in answer.json["environment"]["server"]["problem"]
    assert "s3cr3t" not in answer.stdout + answer.stderr


def test_a_refused_key_is_a_failure_in_the_services_words(url: str, tmp_path: Path) -> None:
    Listening.refuses = True

    answer = rankscope("runs", "--url", url, "--json", home=tmp_path, environ={"RANKSCOPE_KEY": KEY})

    assert answer.status == 1
    assert answer.error["code"] == "unauthenticated"
    assert Listening.heard == [f"Bearer {KEY}"]
    assert "s3cr3t" not in answer.stderr


@pytest.mark.parametrize(
    ("host", "keys", "tls", "insecure", "lacking"),
    [
        ("127.0.0.1", False, False, False, ""),
        ("::1", False, False, False, ""),
        ("localhost", False, False, False, ""),
        ("10.0.0.1", True, True, False, ""),
        ("10.0.0.1", False, False, True, ""),
        ("10.0.0.1", False, True, False, "without keys:"),
        ("::", True, False, False, "without TLS:"),
        ("node-7", False, False, False, "without keys and without TLS:"),
    ],
)
def test_what_listens_beyond_loopback_needs_keys_and_tls(
    host: str, keys: bool, tls: bool, insecure: bool, lacking: str
) -> None:
    fault = exposure_fault(host, has_keys=keys, has_tls=tls, is_insecure=insecure)

    assert lacking in fault
    assert bool(fault) == bool(lacking)
