"""What a request is refused for: before its body is read, for its key, for one event of it; always in one shape."""

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from rankscope._settings import Settings
from rankscope.errors import ConfigError
from rankscope.front import Front, FrontOptions, host_and_port
from rankscope.front.app import MAX_BODY_BYTES, MOST_AT_ONCE
from rankscope.front.errors import FrontError
from rankscope.testing import ManualClock
from rankscope_proto.keys import KeyFile, Scope
from tests.agent.front.clients import BEGIN_NS, CHILD, SPAN, TRACE, Fronted, S, Sender, at, body, event, whole
from tests.ground.certificates import Authority

OTHER = "00f067aa0ba902bf"
SLOW, KEYED = "POST /api/runs/slow/traces/events", "Idempotency-Key: k"
ANYWHERE = "0.0.0.0"  # noqa: S104  # an address is only looked at here


def made(root: Path, **options: Any) -> Front:
    root.mkdir(exist_ok=True)
    front = Front(
        FrontOptions(port=0, **options),
        Settings(home=root, spool=root),
        clock=ManualClock(BEGIN_NS + 60 * S),
    )
    front.start()
    return front


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    running = made(tmp_path_factory.mktemp("front"))
    yield running
    running.close()


@pytest.fixture
def sender(front: Front, request: pytest.FixtureRequest) -> Sender:
    """A client of the front, with a run of its own."""
    return Sender(front.url, run=f"r-{abs(hash(request.node.name))}")


def refused(answer: httpx.Response, status: int) -> str:
    """The message of a refusal, which has the one shape of all."""
    told = answer.json()
    assert answer.status_code == status, told
    assert set(told) == {"code", "message", "hint", "position", "expected"}
    assert answer.headers["content-type"] == "application/json"
    return str(told["message"])


EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("trace_id", {"trace_id": "xyz"}),
    ("trace_id", {"trace_id": "0" * 32}),
    ("trace_id", {"trace_id": 7}),
    ("span_id", {"span_id": "00f067aa0ba902"}),
    ("parent_span_id", {"parent_span_id": "g" * 16}),
    ("parent_span_id", {"parent_span_id": SPAN}),
    ("event_id", {"event_id": "7"}),
    ("sequence", {"sequence": -1}),
    ("sequence", {"sequence": True}),
    ("sequence", {"sequence": 1.5}),
    ("event_kind", {"event_kind": "ended"}),
    ("name", {"name": "  "}),
    ("name", {"name": "n" * 513}),
    ("name", {"name": None}),
    ("kind", {"kind": "llm"}),
    ("status", {"status": "done"}),
    ("step", {"step": True}),
    ("step", {"step": "1"}),
    ("rank", {"rank": -1}),
    ("rank", {"rank": False}),
    ("thread_id", {"thread_id": "t" * 513}),
    ("rollout_id", {"rollout_id": 7}),
    ("started_at", {"started_at": "yesterday"}),
    ("started_at", {"started_at": "2026-13-01T00:00:00Z"}),
    ("started_at", {"started_at": "1999-12-31T23:59:59Z"}),
    ("started_at", {"started_at": "2099-01-01T00:00:00Z"}),
    ("ended_at", {"ended_at": at(-2)}),
    ("duration_ms", {"duration_ms": -0.5}),
    ("duration_ms", {"duration_ms": 1e18}),
    ("input_preview", {"input_preview": "é" * 2049, "content_policy": "preview"}),
    ("input_preview", {"input_preview": "x"}),
    ("error_preview", {"error_preview": "x", "content_policy": "off"}),
    ("redaction_state", {"redaction_state": "captured"}),
    ("redaction_state", {"redaction_state": "none"}),
    ("error_type", {"error_type": "E" * 513}),
    ("attributes", {"attributes": []}),
    ("attributes", {"attributes": {"a": "x" * 32_768}}),
    ("metrics", {"metrics": 7}),
    ("metrics", {"metrics": {str(number): number for number in range(2_000)}}),
    ("started_at", {"started_at": "2026-11-29T10:00:00+99:00"}),
    ("links", {"links": "x"}),
    ("links", {"links": ["x" * 16_384]}),
    ("content_policy", {"content_policy": "full"}),
    ("truncated", {"truncated": 1}),
]


@pytest.mark.parametrize(("field", "wrong"), EVENTS, ids=lambda value: str(value)[:40])
def test_a_refusal_names_the_event_and_the_field_and_nothing_of_the_request_is_kept(
    field: str, wrong: dict[str, Any], tmp_path: Path
) -> None:
    front = Fronted(tmp_path)

    with pytest.raises(FrontError) as refusal:
        front.send(*whole(CHILD), {**event(1, "started"), **wrong})

    assert refusal.value.status == 400
    assert refusal.value.message.startswith(f"events[2].{field} ")
    assert front.written(after_s=60) == []
    front.book.close()


def test_what_is_nested_too_deep_is_refused_by_its_place(sender: Sender) -> None:
    deep = json.loads("[" * 400 + "]" * 400)

    in_a_field = sender.send(json.dumps({"events": [event(1, "started", attributes={"a": deep})]}))
    beside = sender.send(json.dumps({"events": [event(1, "started", colour=deep)]}))

    assert refused(in_a_field, 400) == "events[0].attributes is nested deeper than 254"
    assert refused(beside, 400) == "the body is nested deeper than 254"


@pytest.mark.parametrize("field", ["trace_id", "span_id", "event_id", "sequence", "event_kind", "name", "started_at"])
def test_what_every_event_has_is_missed_by_name(field: str, sender: Sender) -> None:
    lacking = event(1, "started")
    del lacking[field]

    assert refused(sender.post(lacking), 400) == f"events[0].{field} is missing"


def test_a_kind_that_is_none_is_told_the_choices(sender: Sender) -> None:
    answer = sender.post(event(1, "started", kind="llm"))

    assert "rollout, env_step, model" in refused(answer, 400)
    assert answer.json()["expected"][:3] == ["rollout", "env_step", "model"]


TWICE = event(1, "started")
TOGETHER: list[tuple[str, list[dict[str, Any]]]] = [
    ("events[1].event_id", [TWICE, {**TWICE, "sequence": 2}]),
    ("events[1].sequence", [event(1, "started"), event(1, "updated")]),
    (
        "events[1].parent_span_id",
        [event(1, "started", parent_span_id=CHILD), event(2, "updated", parent_span_id=OTHER)],
    ),
    ("goes round", [event(1, "started", parent_span_id=CHILD), event(1, "started", span=CHILD, parent_span_id=SPAN)]),
    ("events has 501 entries", [event(number, "updated") for number in range(501)]),
    ("events has 0 entries", []),
]


@pytest.mark.parametrize(("words", "events"), TOGETHER, ids=[words for words, _ in TOGETHER])
def test_events_of_one_request_agree_with_each_other(words: str, events: list[dict[str, Any]], sender: Sender) -> None:
    assert words in refused(sender.post(*events), 400)


def test_a_later_event_that_names_no_parent_keeps_the_one_before(tmp_path: Path) -> None:
    front = Fronted(tmp_path)

    front.send(event(1, "started", parent_span_id=CHILD), event(2, "finished", ended_at=at(1)))

    assert front.written()[0]["parent_span_id"] == int(CHILD, 16)
    front.book.close()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"7", b'{"events": 7}', b'{"events": [7]}', b'{"events": [null]}', b"\xff"),
        *(b"[" * 100_000, b"[" * 900 + b"]" * 900),
    ],
    ids=lambda content: content[:20],
)
def test_a_body_that_is_no_list_of_events_is_refused(content: bytes, sender: Sender) -> None:
    refused(sender.send(content), 400)


@pytest.mark.parametrize("keys", [[], [""], ["k" * 201], ["a\tb"], ["a", "b"]], ids=str)
def test_a_request_has_one_idempotency_key_that_can_be_one(keys: list[str], sender: Sender) -> None:
    answer = sender.call("POST", headers=[("Idempotency-Key", key) for key in keys])

    assert "Idempotency-Key" in refused(answer, 400)


def test_a_body_beyond_the_limit_is_not_read_whether_it_says_so_or_not(sender: Sender) -> None:
    announced = sender.send(b" " * (MAX_BODY_BYTES + 1))
    in_chunks = sender.send(iter([b" " * 65_536] * 17))

    assert str(MAX_BODY_BYTES) in refused(announced, 413)
    assert str(MAX_BODY_BYTES) in refused(in_chunks, 413)


def test_a_body_that_does_not_come_is_not_waited_for(
    front: Front, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope.front.app.BODY_S", 0.1)

    with begun(front, SLOW, KEYED) as connection:
        answer = connection.recv(4_096)

    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_body_that_is_packed_is_not_unpacked(sender: Sender) -> None:
    refused(sender.send(b"x", headers={"Content-Encoding": "gzip"}), 400)


def test_other_routes_and_methods_are_told_which_there_are(front: Front, sender: Sender) -> None:
    nothing = httpx.post(f"{front.url}/api/runs/a/b/traces/events")

    assert "POST /api/runs/RUN/traces/events" in nothing.json()["hint"]
    refused(nothing, 404)
    refused(httpx.get(f"{front.url}/"), 404)
    refused(sender.call("GET"), 405)
    assert httpx.get(f"{front.url}/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize("run", ["%2E%2E", "%2F", "a%2Fb", "a%00b", "%ff", "n" * 129])
def test_a_run_that_could_not_be_addressed_is_refused(run: str, front: Front) -> None:
    url = httpx.URL(front.url).copy_with(raw_path=f"/api/runs/{run}/traces/events".encode())

    refused(httpx.post(url, headers={"Idempotency-Key": "k"}, content=body(*whole())), 400)


def test_a_page_of_another_site_and_a_name_of_another_host_are_refused(front: Front, sender: Sender) -> None:
    port = front.url.rpartition(":")[2]

    refused(sender.send(body(*whole()), headers={"Origin": "https://evil.example"}), 403)
    refused(sender.send(body(*whole()), headers={"Host": f"evil.example:{port}"}), 421)
    own = sender.send(body(*whole()), headers={"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"})
    assert own.status_code == 200


def test_more_requests_than_are_read_at_a_time_are_told_to_come_again(front: Front, sender: Sender) -> None:
    slow = [begun(front, SLOW, KEYED) for _ in range(MOST_AT_ONCE)]

    answer = sender.post(*whole())
    for connection in slow:
        connection.close()

    refused(answer, 429)
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        (SLOW, (), 400),
        (SLOW, (KEYED, "Content-Encoding: gzip"), 400),
        ("POST /api/runs/a%00b/traces/events", (KEYED,), 400),
        ("POST /api/runs", (), 404),
        ("PUT /api/runs/r/traces/events", (), 405),
    ],
)
def test_a_connection_whose_request_was_refused_unread_is_closed(
    request_line: str, headers: tuple[str, ...], status: int, front: Front
) -> None:
    with begun(front, request_line, *headers) as connection:
        connection.settimeout(30)
        answer = b"".join(iter(lambda: connection.recv(4_096), b""))

    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in answer.lower()


def begun(front: Front, request_line: str, *headers: str) -> socket.socket:
    """A connection with the head of a request and the beginning of its body; the rest never comes."""
    url = httpx.URL(front.url)
    connection = socket.create_connection((url.host, url.port or 0))
    lines = (f"{request_line} HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 1000", *headers)
    connection.sendall("\r\n".join((*lines, "", "{")).encode())
    return connection


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """A key file, and keys of it by what they may."""
    file = KeyFile(tmp_path / "keys.json")
    return {
        "p": file.create(["p"], [Scope.INGEST])[0],
        "reads": file.create(["p"], [Scope.READ])[0],
        "both": file.create(["p", "q"], [Scope.INGEST])[0],
        "revoked": revoked(file),
    }


def revoked(file: KeyFile) -> str:
    key, stored = file.create(["p"], [Scope.INGEST])
    file.revoke(stored.key_id)
    return key


def test_with_a_key_file_only_a_key_with_the_scope_sends_and_only_into_its_projects(
    keys: dict[str, str], tmp_path: Path
) -> None:
    front = made(tmp_path / "spool", keys=tmp_path / "keys.json")
    try:
        without = Sender(front.url).post(*whole())
        refused(without, 401)
        assert without.headers["WWW-Authenticate"] == 'Bearer realm="rankscope"'
        refused(Sender(front.url, key=keys["revoked"]).post(*whole()), 401)
        refused(Sender(front.url, key=keys["reads"]).post(*whole()), 403)
        assert "'default'" in refused(Sender(front.url, key=keys["both"]).post(*whole()), 403)
        assert Sender(front.url, key=keys["p"]).post(*whole()).status_code == 200
        assert Sender(front.url, key=keys["both"], run="r", project="q").post(*whole()).status_code == 200
        refused(Sender(front.url, key=keys["p"], project="q").post(*whole()), 403)
    finally:
        front.close()


@pytest.mark.parametrize("lacking", ["keys", "tls_cert", "both"])
def test_beyond_loopback_it_listens_with_keys_and_tls_only(lacking: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"keys": tmp_path / "keys.json", "tls_cert": tmp_path / "cert.pem"}
    kept = {} if lacking == "both" else {name: path for name, path in given.items() if name != lacking}

    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 is refused.*--http-"):
        FrontOptions(ANYWHERE, 0, **kept).check()

    FrontOptions(ANYWHERE, 0, **given).check()
    FrontOptions(ANYWHERE, 0, is_insecure=True).check()


def test_it_speaks_tls_where_it_has_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.signed("front")
    front = made(tmp_path / "spool", tls_cert=pair.cert, tls_key=pair.key)
    try:
        assert front.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=authority.ca)
        assert httpx.get(f"{front.url}/healthz", verify=trusted).status_code == 200
    finally:
        front.close()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", ("127.0.0.1", 8472)),
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:9", ("::1", 9)),
        ("[::1]", ("::1", 8472)),
        ("node1:0", ("node1", 0)),
    ],
)
def test_an_address_is_read_with_and_without_its_port(address: str, expected: tuple[str, int]) -> None:
    assert host_and_port(address) == expected


@pytest.mark.parametrize("address", ["", ":80", "::1", "host:", "host:70000", "a b:1", "host:x"])
def test_what_is_no_address_is_refused_by_its_option(address: str) -> None:
    with pytest.raises(ConfigError, match="--http"):
        host_and_port(address)


def test_a_port_that_is_taken_is_said_with_the_option_that_names_another(front: Front, tmp_path: Path) -> None:
    port = int(front.url.rpartition(":")[2])

    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}.*--http"):
        Front(FrontOptions(port=port), Settings(home=tmp_path, spool=tmp_path))


def test_fields_that_are_not_known_are_counted_and_left_out(sender: Sender) -> None:
    answer = sender.post(*whole(colour="red", size=7), event(3, "updated", colour="blue"))

    assert answer.json()["warnings"] == ["fields that are not known were not kept: colour (3 events), size (2 events)"]


def test_the_answer_has_what_the_clients_of_that_system_read(sender: Sender) -> None:
    answer = sender.post(*whole())

    assert answer.status_code == 200
    assert answer.json() == {"inserted": 2, "trace_ids": [TRACE], "summary_updates": 1, "warnings": []}


def test_a_book_that_is_full_takes_nothing_new_and_says_when_to_come_again(tmp_path: Path) -> None:
    front = Fronted(tmp_path, most_bytes=0)

    with pytest.raises(FrontError) as refusal:
        front.send(*whole())

    assert (refusal.value.status, dict(refusal.value.headers)) == (503, {"Retry-After": "5"})
    assert orjson.dumps(refusal.value.as_json())
    front.book.close()
