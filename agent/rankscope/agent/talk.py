"""The calls of one sender to one gateway."""

from collections.abc import Iterator
from typing import Protocol, cast

from rankscope._connection import Connection
from rankscope._grpc import grpc
from rankscope.agent.ports import Who
from rankscope.agent.window import Stand
from rankscope.spool import Frame
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed, StandReply, StandRequest
from rankscope_proto.v1.ingest_pb2_grpc import IngestStub

STAND_TIMEOUT_S = 4.5


class Answers(Protocol):
    """A stream's acknowledgements, until it ends."""

    def __iter__(self) -> Iterator[Ack]:
        """Each acknowledgement; raises grpc.RpcError where the stream ends with a status."""
        ...

    def cancel(self) -> object:
        """End the stream."""
        ...


class Talk:
    """A sender's way to the gateway in use.

    Args:
        connection: The way there.
        who: Whose batches are sent.
        key: The API key; None: the connection's own.

    Raises:
        ConfigError: a certificate cannot be read, or the key would cross a network in plaintext.
    """

    def __init__(self, connection: Connection, who: Who, *, key: str | None) -> None:
        self._connection = connection
        self._who = who
        self.endpoint, channel, self._metadata = connection.route(key)
        self._stub = IngestStub(channel)

    def stand(self) -> Stand | None:
        """Where the gateway says this incarnation stands; None when it is too old to tell.

        Raises:
            grpc.RpcError: it did not say.
        """
        project, run_id, incarnation = self._who
        sender = StandRequest.Sender(project=project, run_id=run_id, incarnation=incarnation)
        try:
            reply: StandReply = self._stub.Stand(
                StandRequest(senders=[sender]), timeout=STAND_TIMEOUT_S, metadata=self._metadata
            )
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise
        return Stand(reply.stands[0].accepted, reply.stands[0].durable) if reply.stands else None

    def stream(self, requests: Iterator[Sealed]) -> Answers:
        """Send batches; no deadline, since a stream lives as long as a run: keepalive and a watchdog end a dead one."""
        return cast("Answers", self._stub.Stream(requests, metadata=self._metadata))

    def sealed(self, frame: Frame, *, base: int, again: bool) -> Sealed:
        """The message of a frame."""
        return Sealed(
            payload=frame.payload,
            incarnation=self._who.incarnation,
            seq=frame.seq,
            digest=frame.digest,
            rows=frame.rows,
            week=frame.week,
            base=base,
            again=again,
        )

    def leave(self) -> None:
        """Have the next talk go to another gateway, where there is one."""
        self._connection.leave(self.endpoint)
