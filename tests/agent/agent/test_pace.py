"""How far ahead of the store a backlog is sent: as far as the store follows, hardly at all where it does not."""

from pathlib import Path

from rankscope._connection import Access
from rankscope.agent.carrier import Carrier
from rankscope.agent.pace import FIRST, LEAST, MOST, Pace, Road
from rankscope.agent.ways import Ways
from rankscope.agent.window import Stand, Window
from rankscope.spool import SpoolReader
from tests.agent.agent.spools import Trainer


class Store:
    """Takes batches in order, each so many seconds after it was sent, and tells of it a moment later.

    Args:
        delay_s: How long a batch is on its way.
        rate: Batches it takes in a second at most.
    """

    def __init__(self, *, delay_s: float, rate: float) -> None:
        self.now = 0.0
        self.road = Road(lambda: self.now)
        self.pace = Pace(self.road)
        self._delay_s, self._rate = delay_s, rate
        self._due: list[float] = []
        self.durable = 0
        self.waits: list[float] = []

    def run(self, seconds: float) -> None:
        """Sends all that may go, for so long."""
        end = self.now + seconds
        while self.now < end:
            while self.pace.allows(len(self._due) - self.durable):
                self.pace.note_sent(len(self._due))
                free_at = self._due[-1] + 1 / self._rate if self._due else 0.0
                self._due.append(max(self.now + self._delay_s, free_at))
                self.waits.append(self._due[-1] - self.now)
            self.now += 0.25
            self.durable = sum(due <= self.now for due in self._due)
            self.pace.note_durable(self.durable)


def test_it_grows_while_the_store_follows() -> None:
    store = Store(delay_s=0.8, rate=1e9)

    store.run(20)

    assert store.road.limit == MOST
    assert store.durable > 10 * MOST


def test_it_shrinks_to_what_the_store_takes_in_two_seconds() -> None:
    store = Store(delay_s=0.8, rate=40)

    store.run(60)

    settled = store.waits[len(store.waits) // 2 :]
    assert max(settled) < 3.0
    assert store.durable > 0.6 * 40 * 60  # and the store is not left idle for it


def test_a_store_that_stands_still_gets_no_more() -> None:
    store = Store(delay_s=1e9, rate=1e9)

    store.run(60)

    assert LEAST <= store.road.limit < FIRST
    assert len(store.waits) == FIRST


def test_batches_that_go_again_count_from_when_they_went_last() -> None:
    now = 0.0
    road = Road(lambda: now)
    pace = Pace(road)
    for seq in range(4):
        pace.note_sent(seq)
    now = 100.0
    for seq in range(4):
        pace.note_sent(seq)
    now = 100.5
    pace.note_durable(4)

    assert road.limit > FIRST


def test_a_window_with_a_pace_stops_where_it_says() -> None:
    window = Window(Stand(0, 0), again_below=0, pace=Pace(Road(lambda: 0.0)))
    seq = 0
    while window.may_send(seq, 100):
        window.send(seq, 100)
        seq += 1

    assert seq == FIRST
    window.learn(Stand(seq, 2))
    assert window.may_send(seq, 100)


def test_a_hole_that_is_wider_than_the_pace_is_passed_where_nothing_is_ahead_of_the_store() -> None:
    window = Window(Stand(5, 5), again_below=0, pace=Pace(Road(lambda: 0.0)))
    window.begin(Stand(5, 5))

    assert window.may_send(5 + 2 * FIRST, 100)


def test_backlogs_share_the_road_and_each_may_always_have_a_batch_on_it() -> None:
    road = Road(lambda: 0.0)
    first, second = (Window(Stand(0, 0), again_below=0, pace=Pace(road)) for _ in range(2))
    for seq in range(FIRST - 4):
        assert first.may_send(seq, 100)
        first.send(seq, 100)

    sent = 0
    while second.may_send(sent, 100):
        second.send(sent, 100)
        sent += 1

    assert sent == 4
    assert not first.may_send(FIRST - 4, 100)
    first.learn(Stand(FIRST - 4, FIRST - 4))
    assert second.may_send(sent, 100)


def test_a_backlog_that_gets_no_answers_leaves_its_room_to_the_others() -> None:
    road = Road(lambda: 0.0)
    first, second = (Window(Stand(0, 0), again_below=0, pace=Pace(road)) for _ in range(2))
    for seq in range(FIRST):
        first.send(seq, 100)
    second.send(0, 100)
    assert not second.may_send(1, 100)

    first.interrupt()

    assert second.may_send(1, 100)
    first.learn(Stand(FIRST, 0))
    assert not first.may_send(FIRST, 100)


def test_backlogs_that_go_to_one_gateway_share_its_road_whatever_they_were_recorded_for(tmp_path: Path) -> None:
    here, there = (SpoolReader(_left(tmp_path / "root", endpoint=endpoint)) for endpoint in ("old:1", ""))
    one_for_all = Carrier(tmp_path / "root", Ways(Access(), (), home=tmp_path, instead=("new:1",)))
    each_its_own = Carrier(tmp_path / "root", Ways(Access(), ("new:1",), home=tmp_path))

    assert _is_shared(one_for_all, here, there)
    assert not _is_shared(each_its_own, here, there)


def _left(root: Path, *, endpoint: str) -> Path:
    trainer = Trainer(root, endpoint=endpoint)
    trainer.append()
    trainer.end()
    return trainer.folder


def _is_shared(carrier: Carrier, first: SpoolReader, second: SpoolReader) -> bool:
    """Whether what one backlog has ahead of the store leaves no room to the other."""
    ahead, behind = (carrier._pace(reader) for reader in (first, second))  # pyright: ignore[reportPrivateUsage]
    for seq in range(FIRST):
        ahead.note_sent(seq)
    return not behind.allows(0)
