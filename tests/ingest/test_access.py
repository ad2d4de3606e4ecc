"""Who may call the gateway: keys, scopes, projects, revoking while streams run, and what is said of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from grpc_health.v1.health_pb2 import HealthCheckResponse

from rankscope_ingest import access
from rankscope_ingest.addresses import is_local
from rankscope_ingest.errors import ConfigError
from rankscope_ingest.gateway import serve
from rankscope_ingest.listening import must_be_safe
from rankscope_ingest.settings import GatewaySettings
from rankscope_proto.keys import EVERY_PROJECT, Scope
from rankscope_proto.v1.ingest_pb2 import Ack, AgentStatus, Sealed, StandRequest
from tests.ground.brokers import Broker
from tests.ingest.batches import Sender, batch, seal
from tests.ingest.calls import (
    Streaming,
    first_command,
    health_changes,
    push,
    push_bytes,
    refused,
    retry_info,
    stands,
)
from tests.ingest.gateways import Keys, bearing, reached, running
from tests.ingest.looking import batches_in

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    made = Keys(tmp_path)
    made.new()
    return made


@pytest_asyncio.fixture
async def guarded(broker: Broker, keys: Keys) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a gateway that asks for keys."""
    async with running(broker, {"RANKSCOPE_KEYS": str(keys.path)}) as address, reached(address) as opened:
        yield opened


def of_project(project: str) -> Sealed:
    message = batch()
    message.header.project = project
    return seal(message)


async def test_a_valid_key_of_the_project_sends(guarded: grpc.aio.Channel, keys: Keys) -> None:
    assert (await push(guarded, Sender().next(), metadata=bearing(keys.new()))).outcome == Ack.OUTCOME_ACCEPTED


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer rsk_00000000_" + "x" * 43, "Basic dTpw", "Bearer ü"]
)
async def test_a_call_without_a_valid_key_ends_before_its_body_is_looked_at(
    guarded: grpc.aio.Channel, broker: Broker, authorization: str | None
) -> None:
    given = () if authorization is None else (("authorization", authorization.encode("ascii", "ignore").decode()),)

    with pytest.raises(grpc.aio.AioRpcError, match="RANKSCOPE_KEY") as caught:
        await push_bytes(guarded, b"\xff not a request", metadata=given)

    assert caught.value.code() is UNAUTHENTICATED
    assert retry_info(caught.value) is None
    assert not batches_in(broker)


async def test_a_call_without_a_key_ends_although_its_body_never_comes(guarded: grpc.aio.Channel) -> None:
    call: Any = cast("Any", guarded).stream_unary("/rankscope.v1.Ingest/Push")(timeout=20)

    assert await call.code() is UNAUTHENTICATED


@pytest.mark.parametrize("first_is_valid", [True, False])
async def test_two_keys_in_one_call_are_none(guarded: grpc.aio.Channel, keys: Keys, first_is_valid: bool) -> None:
    valid, other = bearing(keys.new()), bearing("rsk_00000000_" + "x" * 43)

    error = await refused(guarded, Sender().next(), metadata=(*valid, *other) if first_is_valid else (*other, *valid))

    assert error.code() is UNAUTHENTICATED
    assert "send one" in (error.details() or "")


async def test_an_expired_and_a_revoked_key_are_no_keys(guarded: grpc.aio.Channel, keys: Keys) -> None:
    expired, revoked = keys.new(lifetime_ns=1), keys.new()
    keys.revoke(revoked)

    errors = [await refused(guarded, Sender().next(), metadata=bearing(key)) for key in (expired, revoked)]

    assert [error.code() for error in errors] == [UNAUTHENTICATED] * 2


async def test_a_key_without_the_scope_sends_nothing(guarded: grpc.aio.Channel, keys: Keys) -> None:
    reader = bearing(keys.new(scope=Scope.READ))
    status = AgentStatus(project="default", run_id="r", launch_id=bytes(16), incarnation=bytes(16), process_role=1)

    error = await refused(guarded, Sender().next(), metadata=reader)
    with pytest.raises(grpc.aio.AioRpcError) as asked:
        await stands(guarded, [], metadata=reader)
    with pytest.raises(grpc.aio.AioRpcError) as claimed:
        await first_command(guarded, status, metadata=reader)

    codes = [error.code(), (await Streaming(guarded, metadata=reader).refusal()).code()]
    assert [*codes, asked.value.code(), claimed.value.code()] == [DENIED] * 4
    assert "lacks the scope ingest" in (error.details() or "")


async def test_a_foreign_project_and_one_that_does_not_exist_are_refused_in_the_same_words(
    guarded: grpc.aio.Channel, keys: Keys, broker: Broker
) -> None:
    ours, theirs = keys.new("ours"), keys.new("theirs")
    await push(guarded, of_project("theirs"), metadata=bearing(theirs))

    texts = [
        (await refused(guarded, of_project(project), metadata=bearing(ours))).details()
        for project in ("theirs", "none")
    ]

    assert texts[0] is not None
    assert texts[0].replace("theirs", "none") == texts[1]
    assert [found.header.project for found in batches_in(broker)] == ["theirs"]


async def test_every_way_in_asks_for_the_project(guarded: grpc.aio.Channel, keys: Keys) -> None:
    ours = bearing(keys.new("ours"))
    status = AgentStatus(project="theirs", run_id="r", launch_id=bytes(16), incarnation=bytes(16), process_role=1)
    asked_for = StandRequest.Sender(project="theirs", run_id="r", incarnation=bytes(16))

    with pytest.raises(grpc.aio.AioRpcError) as asked:
        await stands(guarded, [asked_for], metadata=ours)
    with pytest.raises(grpc.aio.AioRpcError) as claimed:
        await first_command(guarded, status, metadata=ours)
    with pytest.raises(grpc.aio.AioRpcError) as streamed:
        await Streaming(guarded, metadata=ours).send(of_project("theirs"))

    assert [caught.value.code() for caught in (asked, claimed, streamed)] == [DENIED] * 3


async def test_a_key_of_every_project_sends_to_any(guarded: grpc.aio.Channel, keys: Keys) -> None:
    anywhere = bearing(keys.new(EVERY_PROJECT))

    assert (await push(guarded, of_project("new"), metadata=anywhere)).outcome == Ack.OUTCOME_ACCEPTED


class TestWhileAStreamRuns:
    """Keys change while a stream is open."""

    async def test_a_revoked_key_ends_it_and_another_one_goes_on(
        self, guarded: grpc.aio.Channel, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(access, "RECHECK_S", 0.0)
        key, sender = keys.new(), Sender()
        stream = Streaming(guarded, metadata=bearing(key))
        before = await stream.send(sender.next())
        keys.revoke(key)
        second = sender.next()

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.send(second)
        after = await Streaming(guarded, metadata=bearing(keys.new())).send(second)

        assert caught.value.code() is UNAUTHENTICATED
        assert (before.accepted, after.outcome, after.accepted) == (1, Ack.OUTCOME_ACCEPTED, 2)

    async def test_a_revoked_key_ends_a_silent_one(
        self, guarded: grpc.aio.Channel, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(access, "SILENCE_S", 2.0)
        key = keys.new()
        stream = Streaming(guarded, metadata=bearing(key))
        await stream.send(Sender().next())
        keys.revoke(key)

        assert (await stream.refusal()).code() is UNAUTHENTICATED

    async def test_a_silent_one_is_closed_for_now(
        self, guarded: grpc.aio.Channel, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(access, "SILENCE_S", 0.1)
        stream = Streaming(guarded, metadata=bearing(keys.new()))

        error = await stream.refusal()

        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert b"google.rpc.RetryInfo" in (retry_info(error) or b"")


async def test_calls_without_a_key_are_said_once_and_no_key_ever(
    guarded: grpc.aio.Channel, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    revoked = keys.new()
    keys.revoke(revoked)

    for _ in range(20):
        await refused(guarded, Sender().next(), metadata=bearing(revoked))

    assert caplog.text.count("refused a call") == 1
    assert revoked.rpartition("_")[2] not in caplog.text


async def test_health_is_answered_without_a_key(guarded: grpc.aio.Channel) -> None:
    assert await anext(health_changes(guarded, "rankscope.v1.Ingest")) == HealthCheckResponse.SERVING


async def test_a_key_has_its_share_of_calls_and_no_more(
    guarded: grpc.aio.Channel, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MAX_CALLS_OF_A_KEY", 2)
    greedy, other = bearing(keys.new()), bearing(keys.new())
    streams = [Streaming(guarded, metadata=greedy) for _ in range(2)]
    for stream in streams:
        await stream.send(Sender().next())

    error = await refused(guarded, Sender().next(), metadata=greedy)
    neighbour = await push(guarded, Sender().next(), metadata=other)
    await streams[0].end()
    again = await push(guarded, Sender().next(), metadata=greedy)

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert b"google.rpc.RetryInfo" in (retry_info(error) or b"")
    assert (neighbour.outcome, again.outcome) == (Ack.OUTCOME_ACCEPTED, Ack.OUTCOME_ACCEPTED)


async def test_much_metadata_is_refused_for_ever_and_the_next_call_is_not(
    guarded: grpc.aio.Channel, keys: Keys
) -> None:
    key = bearing(keys.new())

    error = await refused(guarded, Sender().next(), metadata=(*key, ("x-much", "x" * 20_480)))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert retry_info(error) is None
    assert (await push(guarded, Sender().next(), metadata=key)).outcome == Ack.OUTCOME_ACCEPTED


async def test_a_missing_key_file_is_named_with_its_remedy(broker: Broker, tmp_path: Path) -> None:
    settings = {"RANKSCOPE_REDIS_URL": broker.url, "RANKSCOPE_KEYS": str(tmp_path / "none.json")}

    with pytest.raises(ConfigError, match=r"RANKSCOPE_KEYS: .*none\.json.*rankscope keys create"):
        await serve(settings, asyncio.Event())


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.8.9.1:1", "localhost:1", "[::1]:1", "unix:/run/gateway.sock"])
def test_an_address_of_this_machine_needs_neither_keys_nor_tls(listen: str) -> None:
    assert is_local(listen)
    must_be_safe(GatewaySettings.read({"RANKSCOPE_GATEWAY_LISTEN": listen}))


TLS = {"RANKSCOPE_TLS_CERT": "c", "RANKSCOPE_TLS_KEY": "k"}
KEYS = {"RANKSCOPE_KEYS": "keys.json"}


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "gateway.example:1"])
@pytest.mark.parametrize(
    ("given", "missing"), [({}, r"KEYS.*TLS_CERT"), (TLS, "KEYS"), (KEYS, "TLS_CERT")], ids=["both", "keys", "tls"]
)
def test_an_address_that_others_reach_needs_keys_and_tls(listen: str, given: dict[str, str], missing: str) -> None:
    settings = {"RANKSCOPE_GATEWAY_LISTEN": listen, **given}

    with pytest.raises(ConfigError, match=rf"RANKSCOPE_GATEWAY_LISTEN is .*RANKSCOPE_{missing}.* --insecure"):
        must_be_safe(GatewaySettings.read(settings))
    must_be_safe(GatewaySettings.read({**settings, "RANKSCOPE_INSECURE": "1"}))


def test_an_address_that_others_reach_is_served_with_both() -> None:
    must_be_safe(GatewaySettings.read({"RANKSCOPE_GATEWAY_LISTEN": "0.0.0.0:1", **TLS, **KEYS}))
