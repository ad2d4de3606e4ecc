"""What the agent itself says of a launch: a stream of its own, beside those of the processes."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rankscope._block import Block
from rankscope.agent.diary import Diaries
from rankscope.agent.neighbours import Neighbour, Neighbours
from rankscope.agent.rounds import Rounds
from rankscope.spool import SpoolReader, SpoolWriter, spools
from rankscope_proto.names import EventKind, ProcessRole
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.agent.spools import Trainer
from tests.agent.agent.standing_rows import batches_of_agents
from tests.ground.processes import wait_until


@pytest.fixture
def diaries(tmp_path: Path) -> Iterator[Diaries]:
    kept = Diaries(tmp_path)
    yield kept
    kept.close()


def standing(state: str) -> Block:
    now_ns = time.time_ns()
    return Block("standings", 1, {"time": (now_ns,), "of_hi": (1,), "of_lo": (2,), "state": (state,)})


def neighbours(root: Path) -> tuple[Neighbour, ...]:
    looking = Neighbours(root)
    found = looking.look()
    looking.close()
    return found


def said(root: Path) -> list[Batch]:
    return list(batches_of_agents(root))


def takes_nothing(*_: object, **__: object) -> bool:
    return False


def words(batch: Batch) -> list[str]:
    return [batch.strings[index] for index in batch.standings.state]


def test_rows_are_a_batch_of_the_agent_in_the_launch_of_the_process(tmp_path: Path, diaries: Diaries) -> None:
    trainer = Trainer(tmp_path, rank=3, key="secret", endpoint="gate:1")
    (found,) = neighbours(tmp_path)

    diaries.of(found).append(standing("running"))
    diaries.of(found).append(standing("stuck"), at_once=True)
    wait_until(lambda: bool(said(tmp_path)), what="be sealed")

    header = said(tmp_path)[0].header
    assert [state for batch in said(tmp_path) for state in words(batch)] == ["running", "stuck"]
    assert (header.project, header.run_id, header.launch_id) == ("p", "r", trainer.identity.launch_id)
    assert (header.process_role, header.rank, header.seq) == (ProcessRole.AGENT.code, -1, 0)
    assert header.incarnation != trainer.identity.incarnation
    (own,) = (reader for folder in spools(tmp_path) if (reader := SpoolReader(folder)).head.rank == -1)
    assert (own.key, own.head.endpoints) == ("secret", ("gate:1",))
    own.close()


def test_a_diary_ends_with_its_last_word_once_no_process_of_its_launch_lives(tmp_path: Path, diaries: Diaries) -> None:
    first, second = Trainer(tmp_path, run_id="one"), Trainer(tmp_path, run_id="two")
    rounds = Rounds(tmp_path, diaries, visitors=())
    for neighbour in neighbours(tmp_path):
        diaries.of(neighbour).append(standing("running"))
    first.end()

    rounds.make()

    ended = {batch.header.run_id: batch for batch in said(tmp_path)}["one"]
    kinds = [ended.strings[index] for index in ended.events.kind]
    assert kinds == [EventKind.END_OF_STREAM.value]
    assert ended.header.emitted_standings == 1
    wait_until(lambda: any(batch.header.run_id == "two" for batch in said(tmp_path)), what="be sealed")
    second.end()
    rounds.make()
    rounds.close()
    assert sum(len(batch.events.kind) for batch in said(tmp_path)) == 2


def test_rows_that_come_behind_the_last_word_open_no_spool_that_nobody_would_end(
    tmp_path: Path, diaries: Diaries
) -> None:
    Trainer(tmp_path)
    (found,) = neighbours(tmp_path)
    diary = diaries.of(found)
    diary.append(standing("running"))
    diaries.keep(())

    diary.append(standing("stuck"), at_once=True)

    assert diaries.opened == 1
    assert [state for batch in said(tmp_path) for state in words(batch)] == ["running"]


def test_what_nobody_says_anything_of_has_no_diary(tmp_path: Path, diaries: Diaries) -> None:
    Trainer(tmp_path)
    (found,) = neighbours(tmp_path)

    diaries.of(found)
    diaries.keep(())

    assert len(spools(tmp_path)) == 1
    assert neighbours(tmp_path) == (found,)


def test_one_visitor_that_stumbles_takes_nobodys_round(tmp_path: Path, diaries: Diaries) -> None:
    Trainer(tmp_path)
    seen: list[int] = []

    class Stumbling:
        def visit(self, neighbours: object, /) -> None:
            raise ValueError(neighbours)

        def close(self) -> None:
            pass

    class Counting:
        def visit(self, neighbours: Sequence[Neighbour], /) -> None:
            seen.append(len(neighbours))

        def close(self) -> None:
            pass

    rounds = Rounds(tmp_path, diaries, visitors=(Stumbling(), Counting()))
    rounds.make()
    rounds.close()

    assert seen == [1]


def test_without_room_rows_are_counted_and_said_once_there_is_some(
    tmp_path: Path, diaries: Diaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    Trainer(tmp_path)
    (found,) = neighbours(tmp_path)
    diary = diaries.of(found)
    diary.append(standing("running"))
    diary.seal()
    with monkeypatch.context() as full:
        full.setattr(SpoolWriter, "append", takes_nothing)
        for state in ("waits for room", "lost", "lost"):
            diary.append(standing(state))
            diary.seal()

    diary.append(standing("stuck"))
    diary.end()

    batches = said(tmp_path)
    assert [state for batch in batches for state in words(batch)] == ["running", "waits for room", "stuck"]
    gaps = [(batch.strings[batch.gaps.data_kind[0]], batch.gaps.count[0]) for batch in batches if batch.gaps.count]
    assert gaps == [("standings", 2)]
    assert [batch.header.seq for batch in batches] == list(range(len(batches)))
    assert batches[-1].header.emitted_standings == 5
