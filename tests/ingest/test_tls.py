"""The gateway over TLS and mutual TLS; a client with the wrong certificate gets nothing, and never plaintext."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from rankscope_ingest.errors import ConfigError
from rankscope_ingest.gateway import serve
from rankscope_proto.v1.ingest_pb2 import Ack
from tests.ground.brokers import Broker
from tests.ground.certificates import Authority, Pair
from tests.ingest.batches import Sender
from tests.ingest.calls import push
from tests.ingest.gateways import Keys, bearing, running


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Pair:
    return authority.signed("server")


def tls(pair: Pair, *, client_ca: Path | None = None) -> dict[str, str]:
    more = {} if client_ca is None else {"RANKSCOPE_TLS_CLIENT_CA": str(client_ca)}
    return {"RANKSCOPE_TLS_CERT": str(pair.cert), "RANKSCOPE_TLS_KEY": str(pair.key), **more}


@asynccontextmanager
async def over_tls(address: str, ca: Path, *, client: Pair | None = None) -> AsyncGenerator[grpc.aio.Channel]:
    async with grpc.aio.secure_channel(address, trusting(ca, client)) as channel:
        yield channel


def trusting(ca: Path, client: Pair | None) -> grpc.ChannelCredentials:
    own = (client.key.read_bytes(), client.cert.read_bytes()) if client else (None, None)
    return grpc.ssl_channel_credentials(ca.read_bytes(), *own)


async def reason_of_failure(channel: grpc.aio.Channel) -> str:
    """Why a push fails in the handshake."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await push(channel, Sender().next())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return caught.value.details() or ""


async def test_a_key_and_a_batch_go_over_tls(
    broker: Broker, authority: Authority, server: Pair, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    key = keys.new()
    settings = {**tls(server), "RANKSCOPE_KEYS": str(keys.path)}

    async with running(broker, settings) as address, over_tls(address, authority.ca) as channel:
        ack = await push(channel, Sender().next(), metadata=bearing(key))

    assert ack.outcome == Ack.OUTCOME_ACCEPTED


async def test_a_client_of_another_authority_does_not_trust_it(broker: Broker, server: Pair, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")

    async with running(broker, tls(server)) as address, over_tls(address, stranger.ca) as channel:
        assert "CERTIFICATE_VERIFY_FAILED" in await reason_of_failure(channel)


@pytest.mark.parametrize(("hosts", "days"), [("DNS:other.example", 2), ("IP:127.0.0.1", -1)], ids=["host", "expired"])
async def test_a_certificate_that_does_not_hold_is_not_trusted(
    broker: Broker, authority: Authority, hosts: str, days: int
) -> None:
    wrong = authority.signed("wrong", hosts=hosts, days=days)

    async with running(broker, tls(wrong)) as address, over_tls(address, authority.ca) as channel:
        reason = await reason_of_failure(channel)

    assert "CERTIFICATE_VERIFY_FAILED" in reason or "Hostname Verification" in reason or "peer" in reason.lower()


async def test_plaintext_gets_no_answer_on_a_port_of_tls(broker: Broker, server: Pair) -> None:
    async with running(broker, tls(server)) as address, grpc.aio.insecure_channel(address) as channel:
        await reason_of_failure(channel)


async def test_with_mutual_tls_each_client_needs_a_certificate_of_the_authority(
    broker: Broker, authority: Authority, server: Pair, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").signed("client")
    settings = tls(server, client_ca=authority.ca)

    async with running(broker, settings) as address:
        async with over_tls(address, authority.ca) as channel:
            await reason_of_failure(channel)
        async with over_tls(address, authority.ca, client=stranger) as channel:
            await reason_of_failure(channel)
        async with over_tls(address, authority.ca, client=authority.signed("client")) as channel:
            ack = await push(channel, Sender().next())

    assert ack.outcome == Ack.OUTCOME_ACCEPTED


async def test_a_renewed_certificate_is_used_without_a_restart(
    broker: Broker, authority: Authority, server: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    expired, renewed = authority.signed("expired", days=-1), authority.signed("renewed")
    replace(expired, at=server)

    async with running(broker, tls(server)) as address:
        async with over_tls(address, authority.ca) as channel:
            await reason_of_failure(channel)
        replace(renewed, at=server)
        async with over_tls(address, authority.ca) as channel:
            ack = await push(channel, Sender().next())
        server.key.write_text("no key")
        async with over_tls(address, authority.ca) as channel:
            still = await push(channel, Sender().next())

    assert (ack.outcome, still.outcome) == (Ack.OUTCOME_ACCEPTED, Ack.OUTCOME_ACCEPTED)
    assert "the certificates of before stay in use" in caplog.text


def replace(pair: Pair, *, at: Pair) -> None:
    """Puts a pair where another one was, as a renewal does."""
    for made, used in ((pair.cert, at.cert), (pair.key, at.key)):
        fresh = used.with_suffix(".fresh")
        shutil.copy(made, fresh)
        fresh.replace(used)


async def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        await serve(settings, asyncio.Event())
    return str(caught.value)


async def test_files_of_tls_that_cannot_be_used_are_named(
    broker: Broker, authority: Authority, server: Pair, tmp_path: Path
) -> None:
    other, missing = authority.signed("other"), tmp_path / "missing.pem"
    base = {"RANKSCOPE_REDIS_URL": broker.url, "RANKSCOPE_GATEWAY_LISTEN": "127.0.0.1:0"}

    not_a_pair = await refusal({**base, **tls(Pair(server.cert, other.key))})
    not_there = await refusal({**base, **tls(Pair(missing, server.key))})
    not_pem = await refusal({**base, **tls(server, client_ca=server.key)})
    no_key = await refusal({**base, "RANKSCOPE_TLS_CERT": str(server.cert)})
    no_cert = await refusal({**base, "RANKSCOPE_TLS_KEY": str(server.key)})
    only_clients = await refusal({**base, "RANKSCOPE_TLS_CLIENT_CA": str(authority.ca)})

    assert "RANKSCOPE_TLS_KEY" in not_a_pair
    assert "of one pair" in not_a_pair
    assert f"RANKSCOPE_TLS_CERT is {str(missing)!r}: No such file" in not_there
    assert "RANKSCOPE_TLS_CLIENT_CA" in not_pem
    assert "of one pair" in no_key
    assert no_cert == "RANKSCOPE_TLS_KEY is set, and RANKSCOPE_TLS_CERT is not: set it too, or neither"
    assert only_clients == "RANKSCOPE_TLS_CLIENT_CA is set, and RANKSCOPE_TLS_CERT is not: set it too, or neither"


async def test_one_file_may_hold_certificate_and_key(
    broker: Broker, authority: Authority, server: Pair, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(server.cert.read_bytes() + server.key.read_bytes())

    async with (
        running(broker, {"RANKSCOPE_TLS_CERT": str(both)}) as address,
        over_tls(address, authority.ca) as channel,
    ):
        assert (await push(channel, Sender().next())).outcome == Ack.OUTCOME_ACCEPTED


async def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(
    broker: Broker, server: Pair, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "ec", "-in", str(server.key), "-aes256", "-passout", "pass:hush", "-out", str(locked)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0

    text = await refusal({"RANKSCOPE_REDIS_URL": broker.url, **tls(Pair(server.cert, locked))})

    assert "the key is not encrypted" in text


async def test_a_client_certificate_alone_sends_nothing_where_keys_are_on(
    broker: Broker, authority: Authority, server: Pair, tmp_path: Path
) -> None:
    # A client certificate proves the machine; the key still says which projects are the caller's.
    keys = Keys(tmp_path)
    keys.new()
    settings = {**tls(server, client_ca=authority.ca), "RANKSCOPE_KEYS": str(keys.path)}
    own = authority.signed("client")

    async with running(broker, settings) as address, over_tls(address, authority.ca, client=own) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await push(channel, Sender().next())

    assert cast("Any", caught.value).code() is grpc.StatusCode.UNAUTHENTICATED
