"""Says whether the tier in this container answers: exit 0 or 1, one line. The image's HEALTHCHECK.

The gateway is asked by gRPC's health protocol, the query service at `/readyz`. Over TLS either only shakes hands:
a client's certificate, which more may need, is not the container's to have. A writer listens nowhere:
it lives as long as process 1 does, which Docker watches already.
"""

import os
import socket
import ssl
import sys
import urllib.request
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

TIMEOUT_S = 3.0


def main() -> int:
    """Asks the tier that process 1 runs; prints what it answered."""
    words = Path("/proc/1/cmdline").read_text(encoding="utf-8").split("\0")
    try:
        sys.stdout.write(f"{ask(words)}\n")
    except (OSError, grpc.RpcError) as error:
        sys.stdout.write(f"not healthy: {error}\n")
        return 1
    return 0


def ask(words: list[str]) -> str:
    """The healthy answer of the tier that this command line started; anything else is raised."""
    is_tls = bool(os.environ.get("RANKSCOPE_TLS_CERT"))
    if "gateway" in words:
        port = port_of("RANKSCOPE_GATEWAY_LISTEN", default=8471)
        return shake_hands(port) if is_tls else ask_gateway(port)
    if "query-service" in words:
        port = port_of("RANKSCOPE_QUERY_LISTEN", default=8470)
        return shake_hands(port) if is_tls else ask_query_service(port)
    return "listens nowhere"


def shake_hands(port: int) -> str:
    """The TLS version spoken there, or raises `OSError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # our own process on loopback; nothing is sent
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain) as connection,
    ):
        return connection.version() or "TLS"


def ask_gateway(port: int) -> str:
    """`SERVING`, or raises: `ConnectionError` with the other status, `grpc.RpcError` where nothing answers."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        answer = check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    if name != "SERVING":
        message = f"the gateway at port {port} says {name}"
        raise ConnectionError(message)
    return name


def ask_query_service(port: int) -> str:
    """The 2xx status of `/readyz`, or raises `OSError`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=TIMEOUT_S) as response:
        return str(response.status)


def port_of(setting: str, *, default: int) -> int:
    """The port of a `host:port` setting."""
    return int(os.environ.get(setting, f":{default}").rpartition(":")[2])


if __name__ == "__main__":
    raise SystemExit(main())
