"""The end of a training costs nobody time, whatever became of the ingest tier, the agent or the disk."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rankscope.spool import spools
from rankscope.testing import rows_of
from rankscope_proto.names import RunStatus
from tests.agent.agents import agents_ended
from tests.agent.disks import fill, small_disk
from tests.agent.programs import command_of, environment, run_program
from tests.agent.spooled import assert_exact, batches_of, is_ended
from tests.ground.agents import agent_pid
from tests.ground.processes import descendants, free_port

MOST_ADDED_S = 2.0
BUSY = 5
"""So many times what an end takes without recording it may take as well: a busy machine draws both out."""

TRAINING = """
import os, signal, sys
import rankscope
run = rankscope.init("chars", run_id="r", quiet=True)
print("ready", flush=True)
sys.stdin.readline()
for index in range(500):
    with run.step(index):
        run.log_metrics({f"metric {number}": index for number in range(10)})
print("ending", flush=True)
"""

ENDS = (
    ("", 0, RunStatus.FINISHED),
    ("sys.exit(3)", 3, RunStatus.FINISHED),
    ("raise ValueError('no')", 1, RunStatus.FAILED),
    ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, RunStatus.INTERRUPTED),
)
"""How the ranks of one training end, each its own way: last line, exit code, status."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How long a process took to end after its last line, and its exit code."""

    took_s: float
    code: int


class Ranks:
    """The ranks of a training that wait for a word, then record and end."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._processes = [
            subprocess.Popen(
                command_of(TRAINING + end),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment(
                    home,
                    RANKSCOPE_RANK=str(rank),
                    RANKSCOPE_WORLD_SIZE=str(len(ENDS)),
                    RANKSCOPE_LAUNCH_ID="ab" * 16,
                    **environ,
                ),
            )
            for rank, (end, _, _) in enumerate(ENDS)
        ]
        for process in self._processes:
            assert _line(process) == "ready"

    @property
    def children(self) -> set[int]:
        """All processes below them."""
        return {child for process in self._processes for child in descendants(process.pid)}

    def end(self) -> list[Ended]:
        """Let each record and end, one after the other."""
        return [self._ended(process) for process in self._processes]

    def _ended(self, process: subprocess.Popen[str]) -> Ended:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert _line(process) == "ending"
        began = time.monotonic()
        code = process.wait(60)
        return Ended(time.monotonic() - began, code)

    def close(self) -> None:
        """End what is left."""
        for process in self._processes:
            process.kill()
            process.communicate(timeout=60)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def ranks_of(home: Path, **environ: str) -> Generator[Ranks]:
    ranks = Ranks(home, environ)
    try:
        yield ranks
    finally:
        ranks.close()


@pytest.fixture(scope="module")
def unrecorded(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """The same training with nothing recorded."""
    with ranks_of(tmp_path_factory.mktemp("home"), RANKSCOPE_UPLOAD_MODE="disabled") as ranks:
        return ranks.end()


Bad = tuple[dict[str, str], Callable[[], object]]
"""What goes into the environment, and what makes it go bad once all have begun."""


@contextmanager
def gateway_down(home: Path) -> Generator[Bad]:
    yield {"RANKSCOPE_ENDPOINT": f"127.0.0.1:{free_port()}"}, lambda: None


@contextmanager
def gateway_frozen(home: Path) -> Generator[Bad]:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel takes connections, nobody answers
        yield {"RANKSCOPE_ENDPOINT": f"127.0.0.1:{silent.getsockname()[1]}"}, lambda: None


@contextmanager
def agent_stopped(home: Path) -> Generator[Bad]:
    def stop() -> None:
        pid = agent_pid(home / "spool")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)

    yield {"RANKSCOPE_ENDPOINT": f"127.0.0.1:{free_port()}"}, stop


@contextmanager
def disk_full(home: Path) -> Generator[Bad]:
    with small_disk(home / "spool", mebibytes=16) as disk:
        yield {"RANKSCOPE_ENDPOINT": f"127.0.0.1:{free_port()}"}, lambda: fill(disk)


STATES = (gateway_down, gateway_frozen, agent_stopped, disk_full)


@pytest.mark.parametrize("state", STATES, ids=[state.__name__ for state in STATES])
def test_an_end_takes_hardly_longer_than_without_recording_and_leaves_the_last_word(
    unrecorded: list[Ended], tmp_path: Path, state: Callable[[Path], AbstractContextManager[Bad]]
) -> None:
    root = tmp_path / "spool"
    with state(tmp_path) as (environ, go_bad), agents_ended(root), ranks_of(tmp_path, **environ) as ranks:
        assert agent_pid(root) is not None
        assert ranks.children == set()
        go_bad()

        ended = ranks.end()

        assert [one.code for one in ended] == [code for _, code, _ in ENDS]
        for one, plain in zip(ended, unrecorded, strict=True):
            assert one.took_s <= BUSY * plain.took_s + MOST_ADDED_S, (one, plain)
        assert statuses_in(root) == {rank: status.code for rank, (_, _, status) in enumerate(ENDS)}


def statuses_in(root: Path) -> dict[int, object]:
    """How each rank's spool says that it ended; each must be complete."""
    statuses: dict[int, object] = {}
    for folder in spools(root):
        batches = batches_of(folder)
        assert is_ended(folder)
        assert_exact(batches)
        (last,) = rows_of(batches[-1], "run_info")
        statuses[batches[-1].header.rank] = last["status"]
    return statuses


def test_a_process_with_several_runs_one_after_the_other_ends_without_a_thread_that_holds_it(tmp_path: Path) -> None:
    source = """
    import rankscope
    for number in range(5):
        run = rankscope.init("chars", run_id=f"run{number}", quiet=True)
        with run.step(0):
            run.log_metric("loss", 1)
        if number < 4:
            run.finish()
    """

    ended = run_program(source, tmp_path, RANKSCOPE_AGENT="none")

    assert ended.code == 0, ended.err
    assert len(spools(tmp_path / "spool")) == 5
    assert all(is_ended(folder) for folder in spools(tmp_path / "spool"))


def test_several_runs_at_once_in_threads_end_with_the_process(tmp_path: Path) -> None:
    source = """
    import threading
    from rankscope import Run
    from rankscope.testing import MemoryExporter

    runs = [Run(MemoryExporter()) for _ in range(8)]

    def emit(run):
        for index in range(500):
            run.log_metric("a", index)

    threads = [threading.Thread(target=emit, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    """

    assert run_program(source, tmp_path).code == 0
