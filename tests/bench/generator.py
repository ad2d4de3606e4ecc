"""Eight simulated ranks that push straight to the gateway: what the ingest tier takes without spool and agent.

`python -m tests.bench.generator GATEWAY RUN KIND` sends as fast as the gateway takes, until SIGTERM.
"""

import signal
import sys
import threading
from types import FrameType

import grpc

from rankscope._connection import Connection, failure_of
from rankscope._export import SealedBatch
from rankscope_proto.v1.ingest_pb2 import Ack, Sealed
from rankscope_proto.v1.ingest_pb2_grpc import IngestStub
from tests.bench.load import Trainer, identity, kind_named

RANKS = 8
TAKEN = (Ack.OUTCOME_ACCEPTED, Ack.OUTCOME_DUPLICATE)


def main(gateway: str, run: str, kind: str) -> None:
    """Sends as fast as the gateway takes."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    trainers = [Trainer(identity(run, rank, ranks=RANKS), kind_named(kind)) for rank in range(RANKS)]
    threads = [threading.Thread(target=push, args=(gateway, trainer, stop)) for trainer in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def push(gateway: str, trainer: Trainer, stop: threading.Event, /) -> None:
    """One rank: a batch after the other, each until it is taken."""
    connection = Connection(gateway)
    stub = IngestStub(connection.route().channel)
    batch = trainer.next_batch()
    while not stop.is_set():
        pause_s = offered(stub, batch, gateway=gateway)
        if pause_s is None:
            batch = trainer.next_batch()
        else:
            stop.wait(pause_s)
    connection.close()


def offered(stub: IngestStub, batch: SealedBatch, *, gateway: str) -> float | None:
    """Offers a batch; None when it was taken, else after how many seconds to offer it again."""
    sealed = Sealed(
        payload=batch.payload,
        incarnation=batch.incarnation,
        seq=batch.seq,
        digest=batch.digest,
        rows=batch.rows,
        week=batch.week,
    )
    try:
        ack: Ack = stub.Push(sealed)
    except grpc.RpcError as error:
        failure = failure_of(error, gateway)
        if failure.retry_after_s is None:
            raise failure.error from error
        return failure.retry_after_s
    return None if ack.outcome in TAKEN else max(0.01, ack.retry_after_ms / 1e3)


if __name__ == "__main__":
    main(*sys.argv[1:])
