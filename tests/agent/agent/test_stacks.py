"""What threads do is looked at from outside: bounded, without secrets, and with what the system tells alone."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope._host import is_alive, is_stopped, process_start
from rankscope._looked_at import may_look, peer_of
from rankscope.agent import stacks
from rankscope.agent.stacks import AGAIN_S, Stacks, Thread, threads_of, written
from rankscope.agent.standings import letter_of
from rankscope_proto.sections_ranks import STACK_BYTES
from tests.agent.programs import command_of, environment
from tests.ground.processes import Children, wait_until


def frames_of(count: int, *, name: str = "main", size: int = 20) -> Thread:
    return {"thread": name, "frames": [f"{number} {'x' * size}" for number in range(count)]}


def test_what_is_written_is_bounded_and_keeps_the_first_threads_and_the_innermost_frames() -> None:
    threads = [frames_of(100, name=f"thread {number}", size=40) for number in range(100)]

    text = written(threads, str)

    kept = json.loads(text)
    assert len(text.encode()) <= STACK_BYTES
    assert kept[0]["thread"] == "thread 0"
    assert kept[0]["frames"][0].startswith("0 ")
    assert 1 < len(kept) < 100
    assert written([frames_of(3, size=2 * STACK_BYTES)], str) == ""


def test_secrets_in_names_are_masked() -> None:
    looked = Stacks(
        look=lambda _: [{"thread": "t", "frames": ["load (token=hf_abcdefghijklmnopqrstuvwxyz012345.py:3)"]}]
    )

    looked.ask(b"i", 1)
    told: list[str] = []
    wait_until(lambda: bool(told.append(looked.take(b"i")) or told[-1]), what="look")

    assert "load" in told[-1]
    assert "hf_abcdefgh" not in told[-1]


def test_one_process_is_looked_at_at_most_every_half_minute_and_by_one_thread() -> None:
    now, seen, together = [0.0], list[int](), list[int]()

    def look(pid: int) -> list[Thread]:
        seen.append(pid)
        together.append(sum(thread.name == "rankscope-stacks" for thread in threading.enumerate()))
        return [frames_of(1)]

    looked = Stacks(look=look, monotonic=lambda: now[0])
    for _ in range(3):
        for pid in (1, 2, 3):
            looked.ask(bytes([pid]), pid)
    wait_until(lambda: len(seen) == 3, what="look at each")
    now[0] = AGAIN_S
    looked.ask(bytes([1]), 1)
    wait_until(lambda: len(seen) == 4, what="look again")

    assert seen == [1, 2, 3, 1]
    assert max(together) == 1
    looked.close()
    now[0] = 3 * AGAIN_S
    looked.ask(bytes([1]), 1)
    assert len(seen) == 4


@pytest.mark.parametrize("program", ["", "/bin/false"])
def test_without_pyspy_the_system_says_where_threads_wait(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    def found() -> str:
        return program

    monkeypatch.setattr(stacks, "_program", found)
    sleeping = children.start(command_of("import time; time.sleep(600)"), name="sleeps", environ=environment(tmp_path))

    def is_told(condition: Callable[[Thread], bool]) -> bool:
        return any(condition(thread) for thread in threads_of(sleeping.pid))

    sleeping.await_that(lambda: is_told(lambda thread: "sleep" in str(thread["frames"])), what="sleep")
    assert is_told(lambda thread: thread["kernel"] is True)


def test_a_process_whose_name_the_system_cut_within_a_letter_is_looked_at_as_any_other(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "_program", str)
    naming = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {'обучение'.encode()!r}); time.sleep(600)"
    child = children.start(command_of(naming), name="named", environ=environment(tmp_path))

    child.await_that(lambda: "обучени" in str(threads_of(child.pid)), what="be named")

    assert process_start(child.pid)
    assert letter_of(Path(f"/proc/{child.pid}/stat")) == "S"
    assert is_alive(child.pid)
    assert not is_stopped(child.pid)


def test_a_process_that_is_gone_has_no_stack() -> None:
    assert not threads_of(2**22 + 1)


def test_nobody_is_named_where_the_system_does_not_ask_for_it(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    with here, there:
        pid = peer_of(here)
    (tmp_path / "scope").write_text("0\n")

    assert pid > 0
    assert not may_look(pid, yama=tmp_path / "scope")
    assert not may_look(pid, yama=tmp_path / "none")
    (tmp_path / "scope").write_text("1\n")
    assert not may_look(0, yama=tmp_path / "scope")
    assert may_look(pid, yama=tmp_path / "scope") == Path("/proc/sys/kernel/yama").exists()
