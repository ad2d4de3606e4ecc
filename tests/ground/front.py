"""ClickHouse's HTTP interface, as far as clickhouse-connect speaks it, over a chDB of its own.

`python -m tests.ground.front FOLDER PORT` opens chDB in FOLDER and serves until SIGTERM. Each
request has a chDB handle of its own: a failed query leaves its rows in the handle, and
settings given in the URL are set on it and vanish with it.
"""

import json
import os
import re
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb
import lz4.frame

TRANSPORT = {
    *("query", "database", "user", "password", "query_id", "session_id", "session_timeout", "session_check"),
    *("compress", "decompress", "buffer_size", "wait_end_of_query", "client_protocol_version", "default_format"),
    *("send_progress_in_http_headers", "http_headers_progress_interval_ms", "enable_http_compression", "role"),
}
"""Arguments of the URL that are the interface's own; every other one is a setting."""

INSERT = re.compile(
    rb"\s*INSERT\s+INTO\s+(?P<into>.+?)\s+FORMAT\s+(?P<format>\w+)[^\S\n]*(?:\n|$)", re.IGNORECASE | re.DOTALL
)
FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
CODE = re.compile(r"Code: (\d+)\.")

Arguments = dict[str, str]


def quoted(text: str) -> str:
    """A SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@dataclass(slots=True)
class Fault:
    """Inserts into landing that fail because a test says so; a store that is short of something does the same.

    Attributes:
        code: ClickHouse's.
        times: How many more fail.
        is_after: The rows are stored all the same.
    """

    code: int
    times: int
    is_after: bool = False

    def take(self) -> int:
        """The code to fail with now; 0: none."""
        if not self.times:
            return 0
        self.times -= 1
        return self.code


class Engine:
    """The one chDB of this process."""

    def __init__(self, folder: Path) -> None:
        self.fault = Fault(0, 0)
        self._folder = folder
        self._path = str(folder / "store")
        # Held open: with the last handle the engine would go and come again.
        self._first: Any = chdb.connect(self._path)

    def run(self, statement: bytes, body: bytes, arguments: Arguments) -> tuple[bytes, str]:
        """Runs one statement; gives the result and its format.

        Raises:
            RuntimeError: chDB's message, with its code.
        """
        handle: Any = chdb.connect(self._path)
        try:
            if arguments.get("database"):
                handle.query(f"USE `{arguments['database']}`")
            for name, value in arguments.items():
                if name not in TRANSPORT and not name.startswith("param_"):
                    handle.query(f"SET {name} = {quoted(value)}")
            insert = INSERT.match(statement)
            return self._insert(handle, insert, body) if insert else self._query(handle, statement.decode(), arguments)
        finally:
            handle.close()

    def _insert(self, handle: Any, insert: re.Match[bytes], body: bytes) -> tuple[bytes, str]:
        is_landing = insert["into"].split(b"(")[0].strip(b" `").endswith(b"landing")
        code = self.fault.take() if is_landing else 0
        if code and not self.fault.is_after:
            raise RuntimeError(f"Code: {code}. DB::Exception: ordered by a test")
        with tempfile.NamedTemporaryFile(dir=self._folder) as file:
            file.write(body)
            file.flush()
            into, kind = insert["into"].decode(), insert["format"].decode()
            handle.query(f"INSERT INTO {into} FROM INFILE {quoted(file.name)} FORMAT {kind}")
        if code:
            raise RuntimeError(f"Code: {code}. DB::Exception: ordered by a test, after the insert")
        return b"", kind

    def _query(self, handle: Any, statement: str, arguments: Arguments) -> tuple[bytes, str]:
        kind = FORMAT.search(statement)
        name = kind[1] if kind else arguments.get("default_format", "TabSeparated")
        parameters = {key[6:]: value for key, value in arguments.items() if key.startswith("param_")}
        result = handle.query(FORMAT.sub("", statement), name, params=parameters or None)
        return bytes(result.bytes()), name


class Request(BaseHTTPRequestHandler):
    """One request of the interface."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers a ping or a query in the URL."""
        if urlsplit(self.path).path == "/ping":
            self._answer(200, b"Ok.\n", {})
        else:
            self._run()

    def do_POST(self) -> None:
        """Answers a query, an insert, or the order to fail."""
        if urlsplit(self.path).path == "/fault":
            order = {name: int(value) for name, value in parse_qsl(urlsplit(self.path).query)}
            self._engine().fault = Fault(order["code"], order["times"], is_after=bool(order["after"]))
            self._answer(200, b"Ok.\n", {})
            return
        self._run()

    def _run(self) -> None:
        arguments = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = self._body()
        kind = self.headers.get("Content-Type", "")
        if kind.startswith("multipart/form-data"):  # where values are too long for a URL
            arguments |= _form(kind, body)
        statement = arguments.get("query", "").encode()
        if not statement:
            statement, body = _split(body)
        try:
            answer, kind = self._engine().run(statement, body, arguments)
        except Exception as error:  # noqa: BLE001 - the boundary of the process: whatever chDB raises is the answer
            self._refuse(str(error))
            return
        headers = {"X-ClickHouse-Format": kind, "X-ClickHouse-Timezone": "UTC"}
        self._answer(200, answer, headers)

    def _engine(self) -> Engine:
        assert isinstance(self.server, Front)
        return self.server.engine

    def _refuse(self, message: str) -> None:
        code = CODE.search(message)
        number = code[1] if code else "1002"
        text = message[code.start() :] if code else message
        self._answer(500, f"{text}\n".encode(), {"X-ClickHouse-Exception-Code": number})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            raw = b"".join(self._chunks())
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        encoding = self.headers.get("Content-Encoding")
        if encoding == "lz4":
            return bytes(lz4.frame.decompress(raw))  # pyright: ignore[reportUnknownArgumentType] - lz4 has no types
        return raw

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-ClickHouse-Query-Id", str(uuid.uuid4()))
        self.send_header("X-ClickHouse-Summary", json.dumps({}))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the overridden method calls it so
        """Says nothing: a failing statement is in the answer."""


def _form(kind: str, body: bytes) -> dict[str, str]:
    """The fields of a form by name."""
    message = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    fields: dict[str, str] = {}
    for part in message.walk():
        name = part.get_param("name", header="content-disposition")
        if isinstance(name, str):
            fields[name] = bytes(part.get_payload(decode=True)).decode()
    return fields


def _split(body: bytes) -> tuple[bytes, bytes]:
    """The statement at the head of a body, and an insert's data after it."""
    insert = INSERT.match(body)
    return (body[: insert.end()], body[insert.end() :]) if insert else (body, b"")


class Front(ThreadingHTTPServer):
    """The server; it owns the engine."""

    daemon_threads = True
    request_queue_size = 128  # of the 5 that it would be, some wait for seconds on a busy machine to be asked again

    def __init__(self, engine: Engine, port: int) -> None:
        super().__init__(("127.0.0.1", port), Request)
        self.engine = engine


def main(folder: str, port: str) -> None:
    """Serves until the process is told to end."""
    os.chdir(folder)
    front = Front(Engine(Path(folder)), int(port))

    def end(number: int, frame: object) -> None:
        threading.Thread(target=front.shutdown).start()

    signal.signal(signal.SIGTERM, end)
    front.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
