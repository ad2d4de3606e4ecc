"""Eight simulated ranks, each with a gRPC stream of its own, as the SDK sends.

`python -m tests.bench.generator GATEWAY RUN KIND` sends as fast as the gateway takes, until SIGTERM.
"""

import signal
import sys
import threading
from types import FrameType

from rankscope._connection import Connection
from rankscope._grpc_export import GrpcExporter
from tests.bench.load import Trainer, identity, kind_named

RANKS = 8


def main(gateway: str, run: str, kind: str) -> None:
    """Sends as fast as the gateway takes."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    trainers = [Trainer(identity(run, rank, ranks=RANKS), kind_named(kind)) for rank in range(RANKS)]
    connections = [Connection(gateway) for _ in trainers]
    exporters = [GrpcExporter(connection) for connection in connections]
    waiting = [trainer.next_batch() for trainer in trainers]
    while not stop.is_set():
        taken = False
        for rank, exporter in enumerate(exporters):
            if exporter.send(waiting[rank]):
                waiting[rank] = trainers[rank].next_batch()
                taken = True
        if not taken:
            stop.wait(0.01)
    for exporter, connection in zip(exporters, connections, strict=True):
        exporter.close(1.0)
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
