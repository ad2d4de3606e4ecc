"""SIGTERM and SIGKILL of a trainer: what is sealed stays, and the exit status is the signal's."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.spool import SpoolReader, spools
from rankscope_proto.names import RunStatus
from tests.agent.programs import command_of, environment
from tests.agent.spooled import assert_exact, batches_in, is_ended, rows_in
from tests.ground.processes import wait_until

TRAINING = """
import rankscope
run = rankscope.init("chars", run_id="r")
print("ready", flush=True)
step = 0
while True:
    with run.step(step):
        run.log_metric("loss", step)
    step += 1
    if step == 1_000:
        print("warm", flush=True)
    __import__("time").sleep(0.0001)
"""

MINE = """
import signal, sys
def mine(number, frame):
    print("mine", flush=True)
    sys.exit(9)
"""


class Trainer:
    """A training that ends only by a signal."""

    def __init__(self, source: str, home: Path, **environ: str) -> None:
        self.root = home / "spool"
        self._process = subprocess.Popen(
            command_of(source),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(home, RANKSCOPE_AGENT="none", **environ),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_line(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == line

    def end_by(self, number: int, *, group: bool = False) -> tuple[int, str]:
        """Its exit code, and what it said on stderr."""
        if group:
            os.killpg(self.pid, number)
        else:
            os.kill(self.pid, number)
        _, errors = self._process.communicate(timeout=60)
        return self._process.returncode, errors

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)


@pytest.fixture
def trainers() -> Iterator[list[Trainer]]:
    started: list[Trainer] = []
    yield started
    for trainer in started:
        trainer.stop()


def assert_ended_in_order(root: Path) -> None:
    batches = batches_in(root)
    assert rows_in(root, "run_info")[-1]["status"] == RunStatus.INTERRUPTED.code
    assert rows_in(root, "events")[-1]["kind"] == "end_of_stream"
    assert is_ended(spools(root)[0])
    emitted = assert_exact(batches)
    steps = [row["step"] for row in rows_in(root, "scalars")]
    assert steps == list(range(emitted["scalars"]))


@pytest.mark.parametrize("group", [False, True], ids=["the process", "its group"])
def test_sigterm_seals_what_is_left_and_ends_the_process_as_it_would(
    tmp_path: Path, trainers: list[Trainer], group: bool
) -> None:
    trainers.append(Trainer(TRAINING, tmp_path))
    trainers[0].await_line("ready")
    trainers[0].await_line("warm")

    code, _ = trainers[0].end_by(signal.SIGTERM, group=group)

    assert code == -signal.SIGTERM
    assert_ended_in_order(trainers[0].root)


def test_sigterm_in_the_middle_of_an_append_loses_nothing(tmp_path: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(TRAINING, tmp_path, RANKSCOPE_FAILPOINT="spool.append:delay-150"))
    trainers[0].await_line("ready")
    trainers[0].await_line("warm")

    code, _ = trainers[0].end_by(signal.SIGTERM)

    assert code == -signal.SIGTERM
    assert_ended_in_order(trainers[0].root)


def test_sigterm_while_the_disk_does_not_answer_ends_the_process_all_the_same(
    tmp_path: Path, trainers: list[Trainer]
) -> None:
    trainers.append(Trainer(TRAINING, tmp_path, RANKSCOPE_FAILPOINT="spool.append:delay-600000@2"))
    trainers[0].await_line("ready")
    trainers[0].await_line("warm")

    code, _ = trainers[0].end_by(signal.SIGTERM)

    assert code == -signal.SIGTERM
    assert len(batches_in(trainers[0].root)) == 1


def test_sigterm_calls_off_a_wait_for_the_store(tmp_path: Path, trainers: list[Trainer]) -> None:
    source = """
    import rankscope
    run = rankscope.init("chars", run_id="r")
    run.log_metric("loss", 1)
    print("waiting", flush=True)
    run.finish(wait="durable", timeout=3_600)
    """
    trainers.append(Trainer(source, tmp_path))
    trainers[0].await_line("waiting")
    wait_until(lambda: bool(spools(trainers[0].root)) and is_ended(spools(trainers[0].root)[0]), what="spool all")

    code, errors = trainers[0].end_by(signal.SIGTERM)

    assert code == -signal.SIGTERM
    assert "Traceback" not in errors


def test_a_second_sigterm_changes_nothing(tmp_path: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(TRAINING, tmp_path, RANKSCOPE_FAILPOINT="spool.append:delay-100"))
    trainers[0].await_line("ready")
    trainers[0].await_line("warm")

    os.kill(trainers[0].pid, signal.SIGTERM)
    code, _ = trainers[0].end_by(signal.SIGTERM)

    assert code == -signal.SIGTERM
    assert_ended_in_order(trainers[0].root)


@pytest.mark.parametrize("first", ["handler", "run"])
def test_a_handler_of_the_programs_own_is_left_alone(tmp_path: Path, trainers: list[Trainer], first: str) -> None:
    install = "signal.signal(signal.SIGTERM, mine)\n"
    before, after = (install, "") if first == "handler" else ("", install)
    parts = TRAINING.partition('print("ready"')
    source = MINE + before + parts[0] + after + parts[1] + parts[2]
    trainers.append(Trainer(source, tmp_path))
    trainers[0].await_line("ready")
    trainers[0].await_line("warm")

    code, errors = trainers[0].end_by(signal.SIGTERM)

    assert code == 9, errors
    assert is_ended(spools(trainers[0].root)[0])


def test_sigkill_loses_only_what_was_not_sealed(tmp_path: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(TRAINING, tmp_path))
    trainers[0].await_line("ready")
    trainers[0].await_line("warm")
    wait_until(lambda: len(batches_in(trainers[0].root)) >= 3, what="seal")

    code, _ = trainers[0].end_by(signal.SIGKILL)

    assert code == -signal.SIGKILL
    (folder,) = spools(trainers[0].root)
    reader = SpoolReader(folder)
    assert reader.owner_is_gone
    assert not reader.is_ended
    reader.recover()
    reader.close()
    batches = batches_in(trainers[0].root)
    assert [batch.header.seq for batch in batches] == list(range(len(batches)))
    emitted = assert_exact(batches)
    steps = [row["step"] for row in rows_in(trainers[0].root, "scalars")]
    assert steps == list(range(emitted["scalars"]))
