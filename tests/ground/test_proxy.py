"""The proxy does to a connection what its name says, and nothing when healed."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.ground.processes import wait_until
from tests.ground.proxy import Cut, Fault, Proxy


class Echo(socketserver.BaseRequestHandler):
    """Answers every chunk with itself and keeps what it got."""

    got: bytearray

    def handle(self) -> None:
        while chunk := self._received():
            assert isinstance(self.server, EchoServer)
            self.server.got.extend(chunk)
            self.request.sendall(chunk)

    def _received(self) -> bytes:
        try:
            return bytes(self.request.recv(65536))
        except ConnectionResetError:
            return b""


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.got = bytearray()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with EchoServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[Proxy]:
    made = Proxy(f"127.0.0.1:{echo.server_address[1]}")
    yield made
    made.stop()


def opened(proxy: Proxy) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def test_without_a_fault_all_passes(proxy: Proxy) -> None:
    with opened(proxy) as link:
        link.sendall(b"hello")

        assert link.recv(100) == b"hello"


@pytest.mark.parametrize(
    ("cut", "arrived"),
    [(Cut.BEFORE_REQUEST, b""), (Cut.MID_REQUEST, b"12345"), (Cut.AFTER_REQUEST, b"1234567890")],
)
def test_a_cut_resets_the_connection_where_it_says(proxy: Proxy, echo: EchoServer, *, cut: Cut, arrived: bytes) -> None:
    proxy.cut(cut)
    with opened(proxy) as link:
        link.sendall(b"1234567890")

        with pytest.raises(ConnectionResetError):
            link.recv(100)

    assert bytes(echo.got) == arrived
    with opened(proxy) as link:
        link.sendall(b"again")
        assert link.recv(100) == b"again"
    assert proxy.cuts == 1


def test_a_reply_can_be_cut_in_its_middle(proxy: Proxy) -> None:
    proxy.cut(Cut.MID_REPLY)
    with opened(proxy) as link:
        link.sendall(b"1234567890")

        assert link.recv(100) == b"12345"
        with pytest.raises(ConnectionResetError):
            link.recv(100)


def test_half_open_holds_everything_until_it_heals(proxy: Proxy, echo: EchoServer) -> None:
    with opened(proxy) as link:
        proxy.set(Fault(is_half_open=True))
        link.sendall(b"held")
        link.settimeout(0.2)
        with pytest.raises(TimeoutError):
            link.recv(100)
        assert not echo.got

        proxy.heal()

        link.settimeout(5)
        assert link.recv(100) == b"held"


def test_bytes_are_inverted_towards_the_upstream(proxy: Proxy, echo: EchoServer) -> None:
    proxy.set(Fault(xor_every=3))
    with opened(proxy) as link:
        link.sendall(b"\x00\x00\x00\x00")
        wait_until(lambda: len(echo.got) == 4, what="four bytes")

    assert bytes(echo.got) == b"\x00\x00\xff\x00"


def test_delay_and_throttle_take_their_time(proxy: Proxy) -> None:
    proxy.set(Fault(delay_s=0.1, bytes_per_s=100))
    with opened(proxy) as link:
        started = time.monotonic()
        link.sendall(b"x" * 10)
        assert link.recv(100) == b"x" * 10

    assert time.monotonic() - started >= 0.4


def test_refusing_and_cutting_all_end_connections(proxy: Proxy) -> None:
    with opened(proxy) as link:
        link.sendall(b"here")
        assert link.recv(100) == b"here"
        proxy.cut_all()
        with pytest.raises(ConnectionResetError):
            link.recv(100)

    proxy.set(Fault(is_refusing=True))
    with pytest.raises(ConnectionResetError), opened(proxy) as link:  # it may come before anything is read
        link.recv(100)
