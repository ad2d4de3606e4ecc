"""Defects on purpose: `python -m tests.system.mutants NAME TIER` starts a tier with one function replaced.

Each is a design that was tried and loses or doubles rows; with it the oracles must fail, or they would not see the
real thing either. They live here and nowhere in the product.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from rankscope.agent.window import Stand, Window
from rankscope.cli import main
from rankscope_ingest import moving
from rankscope_ingest.clickhouse import Store
from rankscope_ingest.entries import Entry
from rankscope_ingest.errors import StoreUncertain
from rankscope_ingest.presence import Found, Tables
from rankscope_proto.v1.ingest_pb2 import Ack


def free_at_accept() -> None:
    """The spool lets go of what the broker has, instead of what the store has."""
    take, learn = Window.take, Window.learn

    def taking(self: Window, ack: Ack) -> int:
        ack.durable = ack.accepted
        return take(self, ack)

    def learning(self: Window, stand: Stand) -> bool:
        return learn(self, Stand(stand.accepted, stand.accepted))

    Window.take, Window.learn = taking, learning


def no_presence_check() -> None:
    """A batch that comes again is inserted without asking whether it is stored."""

    async def nothing(_tables: Tables, entries: Sequence[Entry]) -> list[Found]:
        return [Found.NONE] * len(entries)

    moving.__dict__["look"] = nothing


def bisect_after_an_error() -> None:
    """An insert that fails is cut in two, each half under a token of its own."""
    write = Store.write

    async def writing(
        self: Store,
        body: bytes,
        *,
        token: str,
        settings: Mapping[str, str | int] | None = None,
        table: str = "landing",
    ) -> None:
        try:
            await write(self, body, token=token, settings=settings, table=table)
        except StoreUncertain:
            messages = list(messages_of(body))
            if len(messages) == 1:
                raise
            middle = len(messages) // 2
            await writing(self, b"".join(messages[:middle]), token=f"{token}:a", settings=settings, table=table)
            await writing(self, b"".join(messages[middle:]), token=f"{token}:b", settings=settings, table=table)

    Store.write = writing


def messages_of(body: bytes) -> Iterator[bytes]:
    """The length-delimited messages of an insert, each with its length."""
    at = 0
    while at < len(body):
        size, shift, head = 0, 0, at
        while body[head] & 0x80:
            size |= (body[head] & 0x7F) << shift
            shift += 7
            head += 1
        size |= body[head] << shift
        yield body[at : head + 1 + size]
        at = head + 1 + size


MUTANTS: dict[str, Callable[[], None]] = {
    defect.__name__: defect for defect in (free_at_accept, no_presence_check, bisect_after_an_error)
}


if __name__ == "__main__":
    MUTANTS[sys.argv[1]]()
    sys.argv = ["rankscope", *sys.argv[2:]]
    main()
