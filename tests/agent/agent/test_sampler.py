"""What the agent samples: figures of this node, of a node as the system describes it, of GPUs, and of processes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rankscope.agent.diary import Diaries
from rankscope.agent.neighbours import Neighbour, Neighbours
from rankscope.agent.sampler.every import seconds_between
from rankscope.agent.sampler.figures import Counters, Figure
from rankscope.agent.sampler.node import MOST_DEVICES, Node
from rankscope.agent.sampler.nvidia import Gpus
from rankscope.agent.sampler.processes import Processes
from rankscope.agent.sampler.visitor import Sampler
from rankscope.errors import ConfigError
from rankscope.testing import rows_of
from tests.agent.agent.agents import AgentProcess
from tests.agent.agent.spools import Trainer
from tests.agent.agent.standing_rows import batches_of_agents
from tests.ground.processes import Children, wait_until

MIB = 2**20


def neighbours(root: Path) -> tuple[Neighbour, ...]:
    looking = Neighbours(root)
    found = looking.look()
    looking.close()
    return found


def sampled(root: Path) -> list[dict[str, Any]]:
    return [row for batch in batches_of_agents(root) for row in rows_of(batch, "system_stats")]


@pytest.fixture
def busy() -> Iterator[int]:
    """A process that holds some memory and never rests."""
    child = subprocess.Popen([sys.executable, "-c", "held = bytearray(64 << 20)\nwhile True: pass"])
    yield child.pid
    child.kill()
    child.wait()


@pytest.fixture
def diaries(tmp_path: Path) -> Iterator[Diaries]:
    kept = Diaries(tmp_path)
    yield kept
    kept.close()


def test_a_node_and_the_process_of_a_rank_are_sampled_into_the_diary_of_their_launch(
    tmp_path: Path, diaries: Diaries, busy: int
) -> None:
    Trainer(tmp_path, rank=3, pid=busy)
    sampler, living = Sampler(diaries, every_s=0.2), neighbours(tmp_path)

    def is_told() -> bool:
        sampler.visit(living)
        return {"cpu.busy", "cpu.rank_busy"} <= {row["name"] for row in sampled(tmp_path)}

    wait_until(is_told, what="be sampled twice")
    sampler.close()

    rows = sampled(tmp_path)
    last = {(row["name"], row["device"]): row["value"] for row in rows}
    assert 0 < last["cpu.busy", ""] <= 1
    assert 0 < last["cpu.rank_busy", "rank 3"] < 1.5
    assert 64 * MIB < last["memory.rank", "rank 3"] < last["memory.total", ""]
    assert 0 < last["memory.used", ""] < last["memory.total", ""]
    assert all(abs(time.time_ns() - row["time"]) < 600e9 for row in rows)
    # The figures of one sample are of one time.
    assert len({row["time"] for row in rows}) < len(rows) / 3


def test_the_agent_of_a_node_samples_and_one_that_a_rank_started_does_not(tmp_path: Path, busy: int) -> None:
    children = Children(tmp_path)
    roots = {name: tmp_path / name / "spool" for name in ("service", "started")}
    for root in roots.values():
        root.mkdir(parents=True)
        Trainer(root, pid=busy)
    options, unsaid = ["--exit-when-idle"], {"RANKSCOPE_SAMPLE": ""}
    try:
        started = AgentProcess(
            children, roots["started"], endpoint="127.0.0.1:9", options=options, environ=unsaid, name="started"
        )
        started.await_ready()
        service = AgentProcess(children, roots["service"], endpoint="127.0.0.1:9", environ=unsaid, name="service")
        wait_until(
            lambda: bool(sampled(service.root)), what="be sampled"
        )  # whoever began before it had its rounds, too
    finally:
        children.stop()

    assert not sampled(started.root)


@pytest.mark.parametrize(("text", "every_s"), [("off", None), ("5s", 5.0), ("1500ms", 1.5), ("1m", 60.0)])
def test_how_often_is_said_as_a_duration(text: str, every_s: float | None) -> None:
    assert seconds_between(text) == every_s


@pytest.mark.parametrize("text", ["", "5", "0s", "999ms", "2h", "-1s", "often"])
def test_anything_else_is_refused_with_what_it_may_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"RANKSCOPE_SAMPLE\) is .*: it is off, or a duration from 1s to 1h"):
        seconds_between(text)


def test_streams_of_the_agent_itself_are_of_programs_that_may_run_anywhere(tmp_path: Path, diaries: Diaries) -> None:
    Trainer(tmp_path, pid=os.getpid())
    sampler = Sampler(diaries, every_s=0)

    sampler.visit(neighbours(tmp_path))
    sampler.visit(())
    sampler.close()
    diaries.close()

    assert sampled(tmp_path) == []


def test_a_process_that_took_over_the_id_of_a_rank_is_not_taken_for_it(tmp_path: Path, busy: int) -> None:
    Trainer(tmp_path, pid=busy)
    (living,) = neighbours(tmp_path)
    processes = Processes(Counters())
    gone = replace(living, head=replace(living.head, process_start=1))

    assert [figure.name for figure in processes.read(living)] == ["memory.rank"]
    assert not list(processes.read(gone))
    assert not list(processes.read(replace(living, is_near=False)))


class Machine:
    """A node as its files describe it."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        self._counters = Counters()
        self._node = Node(self._counters, proc=self.proc, groups=self.groups)
        self._at_s = 100.0
        self.write(self.proc / "self/cgroup", "1:cpu:/old\n0::/pod/one\n")
        self.write(self.proc / "meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 400 kB\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def stat(self, busy: int, idle: int) -> None:
        self.write(self.proc / "stat", f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4\n")

    def net(self, **moved: tuple[int, int]) -> None:
        rows = [f"  {name}: {got} 1 0 0 0 0 0 0 {gave} 1 0 0 0 0 0 0\n" for name, (got, gave) in moved.items()]
        self.write(self.proc / "net/dev", "Inter-|\n face |\n" + "".join(rows))

    def disks(self, **moved: tuple[int, int]) -> None:
        rows = [f" 8 0 {name} 1 0 {read} 0 1 0 {wrote} 0 0 0 0\n" for name, (read, wrote) in moved.items()]
        self.write(self.proc / "diskstats", "".join(rows))

    def group(self, usage_us: int, throttled_us: int, *, limit: str) -> None:
        folder = self.groups / "pod/one"
        told = f"usage_usec {usage_us}\nuser_usec 1\nnr_throttled 3\nthrottled_usec {throttled_us}\n"
        for name, text in (("cpu.stat", told), ("memory.current", "2048\n"), ("memory.max", f"{limit}\n")):
            self.write(folder / name, text)

    def read(self) -> list[Figure]:
        """The figures, two seconds after those before."""
        self._at_s += 2
        self._counters.begin(self._at_s)
        return list(self._node.read())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_counters_are_figures_from_the_second_sample_on(machine: Machine) -> None:
    machine.stat(100, 900)
    machine.net(eth0=(1000, 500), lo=(9, 9))
    machine.disks(sda=(10, 20))
    first = machine.read()
    machine.stat(250, 950)
    machine.net(eth0=(5000, 500), lo=(99, 99))
    machine.disks(sda=(14, 20))
    second = machine.read()

    memory = [Figure("memory.used", 600 * 1024), Figure("memory.total", 1000 * 1024)]
    moved = [("net.received", 2000.0, "eth0"), ("net.sent", 0.0, "eth0")]
    assert first == memory
    assert second == [
        *(Figure("cpu.busy", 0.75), *memory, *(Figure(*one) for one in moved)),
        *(Figure("disk.read", 1024.0, "sda"), Figure("disk.written", 0.0, "sda")),
    ]


def test_a_control_group_has_its_own_use_and_limit(machine: Machine) -> None:
    machine.group(1_000_000, 0, limit="4096")
    machine.read()
    machine.group(4_000_000, 500_000, limit="4096")

    of_group = [figure for figure in machine.read() if ".group_" in figure.name]

    assert of_group == [
        *(Figure("cpu.group_busy", 1.5), Figure("cpu.group_throttled", 0.25)),
        *(Figure("memory.group_used", 2048.0), Figure("memory.group_limit", 4096.0)),
    ]
    machine.group(4_000_000, 500_000, limit="max")
    assert "memory.group_limit" not in {figure.name for figure in machine.read()}


def test_a_node_with_groups_of_version_1_alone_has_its_other_figures(machine: Machine) -> None:
    machine.write(machine.proc / "self/cgroup", "2:cpu:/old\n1:name=systemd:/old\n")
    machine.net(eth0=(1000, 500))
    machine.read()

    assert [figure.name for figure in machine.read()] == ["memory.used", "memory.total", "net.received", "net.sent"]


def test_what_passes_through_another_device_is_counted_once_and_few_devices_are_told(machine: Machine) -> None:
    disks = {"nvme0n1": (9, 9), "nvme0n1p2": (9, 9), "sda": (8, 8), "sda1": (8, 8), "loop0": (7, 7), "dm-0": (9, 9)}
    machine.disks(**disks, sdb=(0, 0))
    machine.net(veth3=(10**9, 0), **{f"eth{number}": (number, 1) for number in range(20)})
    machine.read()
    figures = machine.read()

    assert {figure.device for figure in figures if figure.name == "disk.read"} == {"nvme0n1", "sda"}
    assert {figure.device for figure in figures if figure.name == "net.sent"} == {
        f"eth{number}" for number in range(20 - MOST_DEVICES, 20)
    }


def test_a_counter_that_fell_and_a_file_that_is_another_give_no_figure(machine: Machine) -> None:
    machine.net(eth0=(1000, 500))
    machine.read()
    machine.net(eth0=(10, 700))
    machine.write(machine.proc / "meminfo", "nothing known\n")

    assert machine.read() == [Figure("net.sent", 100.0, "eth0")]


LOST, LAST = 1, 2


class NvmlError(Exception):
    pass


class Used(NamedTuple):
    gpu: int = 0
    used: int = 0
    total: int = 0


class Library:
    """NVML as its binding gives it, with three cards: one is lost, and the last one knows neither errors nor memory."""

    NVMLError = NvmlError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_VOLATILE_ECC = 0, 1, 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1

    def __init__(self, *, has_driver: bool = True) -> None:
        self.asked: list[str] = []
        self._has_driver = has_driver

    def nvmlInit(self) -> None:  # noqa: N802
        self.asked.append("init")
        if not self._has_driver:
            raise NvmlError

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.asked.append("shutdown")

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, kind: int, _counter: int) -> int:  # noqa: N802
        if gpu == LAST:
            raise NvmlError
        return 5 - kind

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return LAST + 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index == LOST:
            raise NvmlError
        return index

    def nvmlDeviceGetUtilizationRates(self, _gpu: int) -> Used:  # noqa: N802
        return Used(gpu=50)

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Used:  # noqa: N802
        return Used(used=2**64 - 1 if gpu == LAST else MIB, total=2 * MIB)

    def nvmlDeviceGetTemperature(self, _gpu: int, _sensor: int) -> int:  # noqa: N802
        return 61

    def nvmlDeviceGetClockInfo(self, _gpu: int, _clock: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetPowerUsage(self, _gpu: int) -> int:  # noqa: N802
        return 320_500


def test_each_gpu_tells_what_it_can_in_whole_units() -> None:
    library = Library()
    gpus = Gpus(library)

    figures = {(figure.device, figure.name): figure.value for figure in [*gpus.read(), *gpus.read()]}
    gpus.close()

    of_first = {name: value for (device, name), value in figures.items() if device == "gpu0"}
    assert of_first == {
        "gpu.busy": 0.5,
        "gpu.memory_used": MIB,
        "gpu.memory_total": 2 * MIB,
        "gpu.temperature": 61.0,
        "gpu.clock_sm": 1.98e9,
        "gpu.power": 320.5,
        "gpu.ecc_corrected": 5.0,
        "gpu.ecc_uncorrected": 4.0,
    }
    assert {device for device, _ in figures} == {"gpu0", "gpu2"}
    assert {name for device, name in figures if device == "gpu2"} == {
        *("gpu.busy", "gpu.memory_total", "gpu.temperature", "gpu.clock_sm", "gpu.power")
    }
    assert library.asked == ["init", "shutdown"]


def test_without_a_driver_gpus_are_asked_for_once() -> None:
    library = Library(has_driver=False)
    gpus = Gpus(library)

    assert [*gpus.read(), *gpus.read()] == []
    assert library.asked == ["init"]


def test_the_binding_that_is_installed_has_what_is_asked_of_it() -> None:
    pynvml = pytest.importorskip("pynvml")

    assert not [name for name in dir(Library) if name[:4].upper() == "NVML" and name not in vars(pynvml)]
    Gpus().close()
