"""Forked children, DataLoader workers above all: they hang nothing, record nothing, and end as they want."""

from pathlib import Path

from rankscope.spool import SpoolReader, spools
from tests.agent.programs import Ended, run_program
from tests.agent.spooled import assert_exact, batches_in, is_ended, rows_in
from tests.agent.test_init import STEP

WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        rankscope.current_run().log_metric("worker", index)
        with rankscope.current_run().span("worker"):
            pass
        return torch.tensor(index)

for epoch in range(3):
    for batch in DataLoader(Numbers(), batch_size=2, num_workers=8):
        run.log_metric("parent", float(batch.sum()))
"""

LOOP = """
import os, threading

def emit(stop):
    while not stop.is_set():
        with run.span("busy"):
            run.log_metric("busy", 1)

stop = threading.Event()
threads = [threading.Thread(target=emit, args=(stop,)) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(100):
    child = os.fork()
    if child == 0:
        for _ in range(50):
            run.log_metric("child", 1)
        with run.step(7), run.span("child"):
            pass
        assert set(run.faults.values()) == {52}, run.faults
        rankscope.finish()
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
stop.set()
for thread in threads:
    thread.join()
"""


def run_alone(source: str, home: Path) -> Ended:
    return run_program(source, home, RANKSCOPE_AGENT="none")


def test_eight_workers_of_a_data_loader_hang_nothing_and_record_nothing(tmp_path: Path) -> None:
    ended = run_alone(STEP + WORKERS, tmp_path)

    assert ended.code == 0, ended.err
    names = [row["name"] for row in rows_in(tmp_path / "spool", "scalars")]
    assert names.count("parent") == 48
    assert "worker" not in names
    assert "worker" not in [row["name"] for row in rows_in(tmp_path / "spool", "spans")]
    assert_exact(batches_in(tmp_path / "spool"))


def test_a_hundred_forks_while_threads_record_hang_nothing_and_touch_no_number(tmp_path: Path) -> None:
    ended = run_alone(STEP + LOOP, tmp_path)

    assert ended.code == 0, ended.err
    (folder,) = spools(tmp_path / "spool")
    reader = SpoolReader(folder)
    assert reader.recover() == []
    reader.close()
    seqs = [batch.header.seq for batch in batches_in(tmp_path / "spool")]
    assert seqs == list(range(len(seqs)))
    assert "child" not in {row["name"] for row in rows_in(tmp_path / "spool", "scalars")}
    assert is_ended(folder)
    assert_exact(batches_in(tmp_path / "spool"))


def test_a_forked_child_may_record_a_run_of_its_own(tmp_path: Path) -> None:
    source = """
    import os
    child = os.fork()
    if child == 0:
        own = rankscope.init(run_id="own")
        assert own.is_recording and own is not run
        own.log_metric("child", 1)
        raise SystemExit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rankscope.current_run() is run
    """

    ended = run_alone(STEP + source.replace("\n    ", "\n"), tmp_path)

    assert ended.code == 0, ended.err
    batches = batches_in(tmp_path / "spool")
    by_run = {batch.header.run_id: batch.header.incarnation for batch in batches}
    assert set(by_run) == {"r", "own"}
    assert by_run["r"] != by_run["own"]
    assert all(is_ended(folder) for folder in spools(tmp_path / "spool"))


def test_a_child_ended_by_sigterm_at_once_ends_by_it_and_alone(tmp_path: Path) -> None:
    source = """
    import os, signal, time
    for _ in range(50):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(1)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with run.step(1):
        pass
    """

    ended = run_alone(STEP + source.replace("\n    ", "\n"), tmp_path)

    assert ended.code == 0, ended.err
    assert [row["step"] for row in rows_in(tmp_path / "spool", "spans")] == [0, 1]
    assert len(rows_in(tmp_path / "spool", "run_info")) == 2
