"""The agent's window against the broker's scripts, while entries, states and whole histories vanish.

Everything but the store is real: `Window` as the agent's sender drives it, `accept.lua`, `stand.lua` and `commit.lua`
on a broker. A seed decides who does what next and what is lost. Nothing may be called durable that the store has not,
and in the end the store has each batch once. Without `again`, or without looking in the store, that does not hold.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
import pytest_asyncio
import redis
from pydantic import SecretStr

from rankscope.agent.window import Stand, Window
from rankscope_ingest.broker_keys import stream_key
from rankscope_ingest.buffer import Buffer, Offer
from rankscope_ingest.errors import LeaseLost
from rankscope_ingest.streams import Streams, Writer
from rankscope_proto.v1.ingest_pb2 import Ack
from tests.ground.brokers import Broker

if TYPE_CHECKING:
    from rankscope_ingest.entries import Entry

SHARD = 3
BATCHES = 24
SENDERS = 3
STEPS = 120
LIFETIME_MS = 600_000


class Agent:
    """One spool and its window.

    Args:
        is_copied: Whether the spool has a copy: another agent may have sent each batch before.
        says_again: Whether it says so where a batch may have been accepted before.
    """

    def __init__(
        self, number: int, buffer: Buffer, *, rng: random.Random, is_copied: bool = False, says_again: bool = True
    ) -> None:
        self._says_again = says_again
        self.incarnation = bytes([number]) * 16
        self._buffer = buffer
        self._rng = rng
        self._idle = 0
        self.window = Window(Stand(0, 0), again_below=BATCHES if is_copied else 0)

    @property
    def is_done(self) -> bool:
        return self.window.durable == BATCHES

    async def act(self) -> None:
        """Sends some batches; or asks, where there is none to send."""
        if self.window.next_seq < BATCHES:
            await self._send(self._rng.randint(1, 6))
        elif not self.is_done:
            await self._ask()

    async def restart(self) -> None:
        """Another process takes the spool over, which knows what was written down."""
        self.window = Window(Stand(self.window.accepted, self.window.durable), again_below=BATCHES)
        await self._begin()

    async def _send(self, count: int) -> None:
        for _ in range(count):
            seq = self.window.next_seq
            if seq >= BATCHES or not self.window.may_send(seq, 100):
                return
            again = self.window.send(seq, 100) and self._says_again
            digest = bytes([seq]) * 16
            offer = Offer(b"payload", self.incarnation, seq, digest, 1, 20_000, self.window.base, 0, again)
            answer = await self._buffer.accept(SHARD, offer, budget=10**9)
            if self._rng.random() < 0.05:  # the answer is lost on its way
                self.window.interrupt()
                await self._begin()
                return
            is_expected = answer.outcome.name == "EXPECTED"
            self.window.take(
                Ack(
                    outcome=Ack.Outcome.ValueType(answer.outcome.value),
                    accepted=answer.accepted,
                    durable=answer.durable,
                    credit=2**22,
                    expected=answer.accepted if is_expected else 0,
                )
            )

    async def _ask(self) -> None:
        before = self.window.durable
        self.window.learn(await self._stand())
        self._idle = self._idle + 1 if self.window.durable == before else 0
        if self._idle > 5:  # the agent's minute without any progress
            self._idle = 0
            self.window.ask_again()

    async def _begin(self) -> None:
        self.window.begin(await self._stand())

    async def _stand(self) -> Stand:
        [stand] = await self._buffer.stands(SHARD, [self.incarnation])
        return Stand(stand.accepted, stand.durable)


class Store:
    """A writer and what it has stored: how often each batch.

    Args:
        looks: Whether it looks for what is doubtful before it inserts.
    """

    def __init__(self, streams: Streams, rng: random.Random, *, looks: bool = True) -> None:
        self._looks = looks
        self.rows: Counter[tuple[bytes, int]] = Counter()
        self._streams = streams
        self._rng = rng
        self._who = Writer("writer", b"")
        self._fence = 0
        self._after = "0-0"
        self._doubtful_to = "0-0"
        self._inserted: list[Entry] = []

    async def become_doubtful(self) -> None:
        """Another history may have begun: what is in the stream now is looked for before it is inserted."""
        leases = await self._streams.lease(self._who, lifetime_ms=LIFETIME_MS, broker="b")
        self._fence = leases.shards[SHARD].fence
        self._after, self._doubtful_to = "0-0", await self._streams.last_id(SHARD)
        self._inserted = []

    async def act(self) -> None:
        """Commits what it inserted; or inserts what it reads."""
        if self._inserted:
            await self._commit()
            return
        entries = await self._streams.read({SHARD: self._after}, count=self._rng.randint(1, 10), block_ms=1)
        for entry in entries:
            is_doubtful = entry.again or _number(entry.place.id) <= _number(self._doubtful_to)
            if not (self._looks and is_doubtful and self.rows[entry.incarnation, entry.seq]):
                self.rows[entry.incarnation, entry.seq] += 1
        self._inserted = entries

    async def _commit(self) -> None:
        entries, self._inserted = self._inserted, []
        try:
            await self._streams.commit(self._who.id, SHARD, entries=entries, fence=self._fence)
            self._after = entries[-1].place.id
        except LeaseLost:
            await self.become_doubtful()


def _number(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)


class Harm:
    """What is done to the broker from outside."""

    def __init__(self, client: redis.Redis, rng: random.Random) -> None:
        self._client = cast("Any", client)  # its stubs answer as an asynchronous client might
        self._rng = rng
        self._kept: dict[bytes, tuple[bytes, int]] = {}

    def remember(self) -> None:
        """Keeps the present history, to fall back to."""
        keys: list[bytes] = self._client.keys()
        self._kept = {key: (self._client.dump(key), max(self._client.pttl(key), 0)) for key in keys}

    def fall_back(self) -> None:
        """The newest part of the history is lost, as by a tail cut or a late replica."""
        self._client.flushall()
        for key, (value, lifetime_ms) in self._kept.items():
            self._client.restore(key, lifetime_ms, value)

    def flush(self) -> None:
        """All is lost."""
        self._client.flushall()

    def trim(self) -> None:
        """The oldest entries are lost, the states are not."""
        self._client.xtrim(stream_key(SHARD), maxlen=self._rng.randint(0, 5), approximate=False)

    def delete_one(self) -> None:
        """Any entry is lost."""
        entries: list[tuple[bytes, object]] = self._client.xrange(stream_key(SHARD))
        if entries:
            self._client.xdel(stream_key(SHARD), self._rng.choice(entries)[0])


@pytest_asyncio.fixture
async def streams(broker: Broker) -> AsyncIterator[Streams]:
    """The writer's face of the broker."""
    opened = Streams(SecretStr(broker.url))
    yield opened
    await opened.close()


SLOW = (pytest.mark.slow, pytest.mark.timeout(1_800))


@dataclass(frozen=True, slots=True)
class Bench:
    """What courses run on."""

    buffer: Buffer
    streams: Streams
    broker: Broker


@pytest.fixture
def bench(buffer: Buffer, streams: Streams, broker: Broker) -> Bench:
    return Bench(buffer, streams, broker)


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 400), marks=SLOW)], ids=["few", "many"])
async def test_each_batch_is_stored_once_whatever_the_broker_loses(bench: Bench, seeds: range) -> None:
    await courses(bench, seeds)


async def test_a_sender_that_never_says_again_makes_the_test_above_fail(bench: Bench) -> None:
    with pytest.raises(AssertionError):
        await courses(bench, range(20), says_again=False)


async def test_a_writer_that_never_looks_makes_the_test_above_fail(bench: Bench) -> None:
    with pytest.raises(AssertionError):
        await courses(bench, range(20), looks=False)


async def courses(bench: Bench, seeds: range, *, says_again: bool = True, looks: bool = True) -> None:
    """A course for each seed, on an empty broker."""
    for seed in seeds:
        rng = random.Random(seed)
        store = Store(bench.streams, rng, looks=looks)
        agents = [Agent(number, bench.buffer, rng=rng, says_again=says_again) for number in range(1, SENDERS + 1)]
        if rng.random() < 0.3:  # a copy of a spool is drained beside the spool itself, and both know that there are two
            agents[0] = Agent(1, bench.buffer, rng=rng, is_copied=True, says_again=says_again)
            agents.append(Agent(1, bench.buffer, rng=rng, is_copied=True, says_again=says_again))
        with bench.broker.client() as client:
            client.flushall()
            await store.become_doubtful()
            await one_course(agents, store, harm=Harm(client, rng), rng=rng)


async def one_course(agents: list[Agent], store: Store, *, harm: Harm, rng: random.Random) -> None:
    """Many steps with losses, then as many without as it takes."""
    for _ in range(STEPS):
        await step(agents, store, harm=harm, rng=rng)
        assert_nothing_is_called_durable_that_is_not(agents, store)
    for _ in range(2_000):
        if all(agent.is_done for agent in agents):
            break
        await rng.choice(agents).act()
        await store.act()
        assert_nothing_is_called_durable_that_is_not(agents, store)

    assert store.rows == Counter({(agent.incarnation, seq): 1 for agent in agents for seq in range(BATCHES)})


async def step(agents: list[Agent], store: Store, *, harm: Harm, rng: random.Random) -> None:
    """One thing happens."""
    match rng.choices(["send", "write", "restart", "crash", "remember", "lose", "delete"], [40, 40, 3, 3, 6, 5, 6])[0]:
        case "send":
            await rng.choice(agents).act()
        case "write":
            await store.act()
        case "restart":
            await rng.choice(agents).restart()
        case "crash":  # of the writer, maybe between insert and commit
            await store.become_doubtful()
        case "remember":
            harm.remember()
        case "lose":
            rng.choice([harm.fall_back, harm.flush])()
            await store.become_doubtful()
        case _:
            rng.choice([harm.trim, harm.delete_one])()


def assert_nothing_is_called_durable_that_is_not(agents: list[Agent], store: Store) -> None:
    for agent in agents:
        missing = [seq for seq in range(agent.window.durable) if not store.rows[agent.incarnation, seq]]
        assert not missing
