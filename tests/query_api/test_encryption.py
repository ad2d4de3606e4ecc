"""TLS on a real socket: who gets in, whom clients believe, and what is refused before it listens."""

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope.up import Access, Client, UnreachableError
from rankscope_proto.keys import KeyFile, Scope
from rankscope_query_api.errors import SettingsError
from rankscope_query_api.service import serve
from tests.ground.certificates import Authority
from tests.ground.processes import answers, free_port, wait_until
from tests.ground.stores import Store


@contextmanager
def serving(told: Store, **settings: str | Path) -> Generator[int]:
    """The service on loopback in a thread; the port."""
    port, loop, stop = free_port(), asyncio.new_event_loop(), asyncio.Event()
    given = {f"RANKSCOPE_{name.upper()}": str(value) for name, value in settings.items()}
    own = {"RANKSCOPE_CLICKHOUSE_URL": told.url, "RANKSCOPE_QUERY_LISTEN": f"127.0.0.1:{port}"}
    thread = threading.Thread(target=loop.run_until_complete, args=[serve(own | given, stop)])
    thread.start()
    try:
        wait_until(lambda: answers(port), what="the service listens")
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_client_that_trusts_the_authority_and_has_a_key_reads(
    told: Store, authority: Authority, tmp_path: Path
) -> None:
    server = authority.signed("server")
    key, _ = KeyFile(tmp_path / "keys.json").create(["default"], [Scope.READ])
    access = Access(key=key, ca=str(authority.ca))

    with serving(told, tls_cert=server.cert, tls_key=server.key, keys=tmp_path / "keys.json") as port:
        runs = Client(f"https://localhost:{port}", access=access).get("/runs")

    assert runs["items"]


def test_a_client_that_trusts_another_authority_says_so_and_sends_no_key(
    told: Store, authority: Authority, tmp_path: Path
) -> None:
    server, other = authority.signed("server"), Authority(tmp_path, "other")
    access = Access(key="rsk_00000000_secret", ca=str(other.ca))

    with (
        serving(told, tls_cert=server.cert, tls_key=server.key) as port,
        pytest.raises(UnreachableError, match="certificate verify failed") as refused,
    ):
        Client(f"https://localhost:{port}", access=access).get("/runs")

    assert "secret" not in str(refused.value)


def test_a_certificate_for_another_name_is_not_believed(told: Store, authority: Authority) -> None:
    server = authority.signed("server", hosts="DNS:traces.example")

    with (
        serving(told, tls_cert=server.cert, tls_key=server.key) as port,
        pytest.raises(UnreachableError, match="certificate verify failed"),
    ):
        Client(f"https://localhost:{port}", access=Access(ca=str(authority.ca))).get("/runs")


def test_with_a_client_authority_only_its_clients_get_in(told: Store, authority: Authority, tmp_path: Path) -> None:
    server, mine = authority.signed("server"), authority.signed("client")
    strange = Authority(tmp_path, "other").signed("client")
    known = Access(ca=str(authority.ca), cert=str(mine.cert), cert_key=str(mine.key))
    foreign = Access(ca=str(authority.ca), cert=str(strange.cert), cert_key=str(strange.key))

    with serving(told, tls_cert=server.cert, tls_key=server.key, tls_client_ca=authority.ca) as port:
        url = f"https://localhost:{port}"
        runs = Client(url, access=known).get("/runs")
        for access in (foreign, Access(ca=str(authority.ca))):
            with pytest.raises(UnreachableError):
                Client(url, access=access).get("/runs")

    assert runs["items"]


def test_an_endless_body_without_a_key_is_cut_off(told: Store, tmp_path: Path) -> None:
    KeyFile(tmp_path / "keys.json").create(["default"], [Scope.READ])
    head = "POST /api/v1/tql HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    sent = 0

    with (
        serving(told, keys=tmp_path / "keys.json") as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        connection.settimeout(30)
        connection.sendall(head.encode())
        answer = connection.recv(65_536)
        try:
            while sent < 1000:
                connection.sendall(chunk)
                sent += 1
        except OSError:
            pass

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nconnection: close\r\n" in answer.lower()
    assert sent < 1000, "64 MiB were taken in from somebody without a key"


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "localhost.example:0"])
@pytest.mark.parametrize(("given", "lacking"), [((), "keys and without TLS"), (("keys",), "TLS"), (("tls",), "keys")])
async def test_beyond_loopback_it_starts_with_keys_and_tls_only(
    listen: str, given: tuple[str, ...], lacking: str, tmp_path: Path
) -> None:
    settings = {"RANKSCOPE_QUERY_LISTEN": listen}
    if "keys" in given:
        KeyFile(tmp_path / "keys.json").create(["default"], [Scope.READ])
        settings["RANKSCOPE_KEYS"] = str(tmp_path / "keys.json")
    if "tls" in given:
        server = Authority(tmp_path).signed("server")
        settings |= {"RANKSCOPE_TLS_CERT": str(server.cert), "RANKSCOPE_TLS_KEY": str(server.key)}

    with pytest.raises(SettingsError, match=f"beyond loopback, without {lacking}:.*--insecure"):
        await serve(settings, asyncio.Event())


async def test_insecure_lets_it_listen_beyond_loopback(told: Store) -> None:
    stop = asyncio.Event()
    stop.set()
    listen = {"RANKSCOPE_QUERY_LISTEN": "0.0.0.0:0", "RANKSCOPE_INSECURE": "1"}

    await serve({"RANKSCOPE_CLICKHOUSE_URL": told.url, **listen}, stop)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"KEYS": "nowhere.json"}, "RANKSCOPE_KEYS: the key file nowhere.json cannot be read"),
        ({"TLS_CERT": "nowhere.pem"}, "RANKSCOPE_TLS_CERT: TLS cannot be set up with certificate 'nowhere.pem'"),
        ({"TLS_KEY": "nowhere.pem"}, "set RANKSCOPE_TLS_CERT too"),
        ({"TLS_CLIENT_CA": "nowhere.pem"}, "set RANKSCOPE_TLS_CERT too"),
        ({"INSECURE": "perhaps"}, "RANKSCOPE_INSECURE is not usable"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named(settings: dict[str, str], words: str) -> None:
    given = {f"RANKSCOPE_{name}": value for name, value in settings.items()}

    with pytest.raises(SettingsError, match=words):
        await serve({"RANKSCOPE_QUERY_LISTEN": "127.0.0.1:0", **given}, asyncio.Event())
