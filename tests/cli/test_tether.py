"""A tethered child ends with the process that started it, however that ends."""

import os
import subprocess
import sys
from pathlib import Path

from rankscope.up import tethered
from tests.ground.processes import Child, alive, wait_until

PARENT = """
import subprocess, sys, time
from rankscope.up import tethered
child = subprocess.Popen(tethered(sys.executable, "-c", "import time; time.sleep(600)"))
print(child.pid, flush=True)
time.sleep(600)
"""


def test_the_child_of_a_killed_parent_ends(tmp_path: Path) -> None:
    parent = Child([sys.executable, "-c", PARENT], name="parent", folder=tmp_path)
    wait_until(lambda: parent.output().strip().isdigit(), what="the child runs")
    child = int(parent.output())

    parent.signal(9)
    parent.wait()

    wait_until(lambda: not alive(child), what="the child has ended")


def test_a_tethered_program_keeps_its_output_and_its_exit_status() -> None:
    program = "import sys; print('said'); sys.exit(7)"

    done = subprocess.run(tethered(sys.executable, "-c", program), check=False, capture_output=True, text=True)

    assert (done.stdout, done.returncode) == ("said\n", 7)


def test_a_child_whose_parent_is_gone_already_does_not_begin() -> None:
    command = tethered(sys.executable, "-c", "print('began')")
    command[command.index(str(os.getpid()))] = "1" if os.getpid() != 1 else "2"

    done = subprocess.run(command, check=True, capture_output=True, text=True)

    assert not done.stdout
