"""Where two real ranks stand, of which one is waited for."""

import json
from pathlib import Path

from rankscope.agent.diary import Diaries
from rankscope.agent.rounds import Rounds
from rankscope.agent.stacks import Stacks
from rankscope.agent.standings import Standings
from tests.agent.agent.standing_rows import heads_in, rows_of_process
from tests.agent.programs import command_of, environment
from tests.ground.processes import Children, wait_until

TRAINING = """
import os, sys, time
import torch
import torch.distributed as dist
import rankscope
pids = []
def in_my_own_code():
    time.sleep(600)
for rank in (0, 1):
    pid = os.fork()
    if pid:
        pids.append(pid)
        continue
    run = rankscope.init("chars", run_id="r", launch_id="1" * 32, quiet=True, rank=rank, world_size=2)
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
    for step in range(3):
        with run.step(step):
            if rank == 1 and step == 2:
                in_my_own_code()
            dist.all_reduce(torch.ones(4, 1000))
for pid in pids:
    os.waitpid(pid, 0)
"""


def test_of_two_ranks_the_one_that_is_waited_for_is_told_by_the_numbers_of_both(
    children: Children, tmp_path: Path
) -> None:
    root = tmp_path / "spool"
    diaries = Diaries(root)
    rounds = Rounds(root, diaries, visitors=(Standings(diaries, Stacks()),))
    rounds.start()
    command = [*command_of(TRAINING), str(tmp_path / "meet")]
    ranks = children.start(command, name="ranks", environ=environment(tmp_path, RANKSCOPE_AGENT="none"))
    try:
        ranks.await_that(lambda: len(heads_in(root)) == 2, what="begin")
        waiting, late = (heads_in(root)[rank] for rank in (0, 1))
        ranks.await_that(
            lambda: any(row["state"] == "waiting" for row in rows_of_process(root, waiting)), what="wait for the other"
        )
        wait_until(lambda: any(row["stack"] for row in rows_of_process(root, late)), what="look at what it does")
    finally:
        ranks.stop(timeout_s=1)
        rounds.close()
        diaries.close()

    waits = next(row for row in rows_of_process(root, waiting) if row["state"] == "waiting")
    assert (waits["group"], waits["op"], waits["shape"], waits["step"]) == ("0", "all_reduce", "4x1000", 2)
    assert (waits["enqueued"], waits["completed"]) == (3, 2)
    looked = next(row for row in rows_of_process(root, late) if row["stack"])
    assert (looked["state"], looked["enqueued"], looked["completed"], looked["step"]) == ("running", 2, 2, 2)
    assert "in_my_own_code" in json.loads(looked["stack"])[0]["frames"][0]
