"""Everything but spans: metrics, what is said of the run, heartbeats, the end of the stream."""

import io
import json
import math
import sys
import threading
from pathlib import Path
from timeit import timeit
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from rankscope import Run
from rankscope._heartbeat import open_span_block
from rankscope._run_info import RunInfo, config_json, masked_command
from rankscope._voice import say
from rankscope.privacy import REDACTED, Redactor
from rankscope.testing import ManualClock, MemoryExporter
from rankscope_proto.keys import KeyFile, Scope
from rankscope_proto.names import SPAN_FLAGS, RunStatus, SpanStatus
from tests.ground.processes import wait_until


def test_metrics_keep_nan_and_take_the_step_they_are_logged_in() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        run.log_metric("outside", 1)
        with run.step(4):
            run.log_metrics({"loss": math.nan, "lr": 1e-3})
        run.log_metric("given", math.inf, step=9)

    rows = [(row["name"], row["value"], row["step"]) for row in exporter.rows("scalars")]
    assert rows[0] == ("outside", 1.0, None)
    assert rows[1][0] == "loss"
    assert math.isnan(float(str(rows[1][1])))
    assert rows[2:] == [("lr", 1e-3, 4), ("given", math.inf, 9)]


def test_a_metric_without_a_number_is_counted_and_the_others_are_kept() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        run.log_metrics({"bad": "high", "good": 1})  # pyright: ignore[reportArgumentType]  # what untyped code may do
        run.log_metrics({})

    assert [row["name"] for row in exporter.rows("scalars")] == ["good"]
    assert sum(run.faults.values()) == 1


def test_a_run_is_described_at_its_start_and_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--api-key", "abc", "--lr=1"])
    exporter, clock = MemoryExporter(), ManualClock()
    info = RunInfo("ppo", {"lr": 0.1, "nested": {"x": math.nan}}, ("a", "b"), {"cpus": "2"})

    with Run(exporter, clock=clock, info=info):
        clock.advance(1_000)

    first, last = exporter.rows("run_info")
    assert (first["status"], first["end"]) == (RunStatus.RUNNING.code, None)
    assert (last["status"], last["end"]) == (RunStatus.FINISHED.code, clock.wall_ns())
    assert last["end"] == int(str(first["start"])) + 1_000
    for row in (first, last):
        assert (row["name"], row["tags"], row["facts"]) == ("ppo", ["a", "b"], {"cpus": "2"})
        assert json.loads(str(row["config"])) == {"lr": 0.1, "nested": {"x": "NaN"}}
        assert row["command"] == "train.py --api-key [REDACTED] --lr=1"


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, RunStatus.FAILED), (KeyboardInterrupt, RunStatus.INTERRUPTED)]
)
def test_a_run_left_by_an_exception_says_so(error: type[BaseException], status: RunStatus) -> None:
    exporter = MemoryExporter()

    with pytest.raises(error), Run(exporter):
        raise error

    assert exporter.rows("run_info")[-1]["status"] == status.code


def test_the_end_of_the_stream_carries_the_last_sums() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        run.log_metrics({"a": 1, "b": 2})
        with run.step(0):
            pass

    (event,) = exporter.rows("events")
    emitted = json.loads(str(event["payload"]))["emitted"]
    assert event["kind"] == "end_of_stream"
    assert {section: rows for section, rows in emitted.items() if rows} == {
        "spans": 1,
        "scalars": 2,
        "run_info": 2,
        "events": 1,
    }
    header = exporter.headers()[-1]
    assert all(getattr(header, f"emitted_{section}") == rows for section, rows in emitted.items())


def test_a_heartbeat_shows_the_open_spans_of_each_thread_outermost_first() -> None:
    exporter, clock = MemoryExporter(), ManualClock()
    entered, leave = threading.Event(), threading.Event()

    def other(run: Run) -> None:
        with run.span("waiting"):
            entered.set()
            leave.wait(10)

    with Run(exporter, clock=clock) as run:
        thread = threading.Thread(target=other, args=(run,), name="worker")
        with run.step(2), run.span("outer"), run.span("inner"):
            thread.start()
            entered.wait(10)
            recording = run._recording  # pyright: ignore[reportPrivateUsage]  # what the sealing thread reads
            recording.append(open_span_block(recording))
        leave.set()
        thread.join()

    rows = {row["thread"]: row for row in exporter.rows("open_spans")}
    assert rows["MainThread"]["stack_name"] == ["step", "outer", "inner"]
    assert rows["worker"]["stack_name"] == ["waiting"]
    assert {row["step"] for row in rows.values()} == {2}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["t.py", "--wandb-api-key=abc", "x"], "t.py --wandb-api-key=[REDACTED] x"),
        (["t.py", "--token", "abc", "x"], "t.py --token [REDACTED] x"),
        (["t.py", "postgres://me:pw@db/x"], "t.py postgres://me:[REDACTED]@db/x"),
        (["t.py", "Authorization:abc"], "t.py Authorization:[REDACTED]"),
        (["t.py", "sk-abcdefghij"], "t.py [REDACTED]"),
        (["t.py", "--lr", "0.1", "--tokenizer-path", "p"], "t.py --lr 0.1 --tokenizer-path p"),
    ],
)
def test_secrets_on_the_command_line_are_masked(arguments: list[str], shown: str) -> None:
    assert masked_command(arguments, Redactor()) == shown


def test_a_key_of_our_own_is_masked_wherever_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = KeyFile(tmp_path / "keys.json").create(["p"], [Scope.INGEST])
    monkeypatch.setattr("sys.argv", ["t.py", key, f"--note=use {key} here"])
    exporter = MemoryExporter()
    info = RunInfo(name=key, config={"note": key, key: 1, "deep": [{"a": key}]}, tags=(key,), facts={"host": key})

    with Run(exporter, info=info):
        pass

    assert not any(key.encode() in batch.payload for batch in exporter.batches)


def test_secrets_in_the_configuration_are_masked_and_numbers_are_not() -> None:
    config = {
        "password": "hunter2",
        "database": {"url": "postgres://me:pw@db/x", "credentials": {"user": "me", "port": 5432}},
        "HF_TOKEN": b"abc",
        "note": "use sk-abcdefghij",
        "keys": [{"api_key": "abc"}],
        "loss_per_token": 0.25,
        "token": 7,
        "secret": None,
        "pad_token": "<pad>",
        "tokenizer": "gpt2",
    }

    assert json.loads(config_json(config, Redactor())) == {
        "password": REDACTED,
        "database": {"url": f"postgres://me:{REDACTED}@db/x", "credentials": {"user": REDACTED, "port": 5432}},
        "HF_TOKEN": REDACTED,
        "note": f"use {REDACTED}",
        "keys": [{"api_key": REDACTED}],
        "loss_per_token": 0.25,
        "token": 7,
        "secret": None,
        "pad_token": "<pad>",
        "tokenizer": "gpt2",
    }


def test_a_configuration_of_long_words_is_masked_in_no_time_to_speak_of() -> None:
    seconds = [
        timeit(lambda size=size: config_json({"a": "x" * size}, Redactor()), number=3) for size in (10_000, 100_000)
    ]

    assert seconds[1] < 50 * seconds[0]  # ten times the length; its square would be a hundred times


def test_a_configuration_that_is_no_json_is_kept_as_text() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("mute")

    assert json.loads(config_json({"a": {1}, "b": object, "c": None, 3: (1, 2)}, Redactor()))["a"] == [1]  # pyright: ignore[reportArgumentType]
    assert "mute" in config_json({"a": Mute()}, Redactor())
    assert "too_long" in config_json({"a": "x" * 2_000_000}, Redactor())


def test_a_run_without_an_exporter_records_nothing_and_costs_no_thread() -> None:
    before = threading.active_count()

    with Run(None) as run, run.step(0), run.span("a"):
        run.log_metric("x", 1)

        assert threading.active_count() == before
        assert not run.is_recording


def test_heartbeats_come_by_themselves_while_a_span_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope._pump.HEARTBEAT_S", 0.02)
    monkeypatch.setattr("rankscope._pump.SEAL_S", 0.02)
    exporter = MemoryExporter()

    def beats() -> list[str]:
        return [str(row["stack_name"]) for row in exporter.rows("open_spans")]

    with Run(exporter) as run, run.span("hangs"):
        wait_until(lambda: beats().count("['hangs']") >= 2, what="beat twice")

    assert set(beats()) <= {"[]", "['hangs']"}  # the first beat may come before the span opens


def test_heartbeats_come_while_nothing_is_open_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope._pump.HEARTBEAT_S", 0.02)
    monkeypatch.setattr("rankscope._pump.SEAL_S", 0.02)
    exporter = MemoryExporter()

    with Run(exporter):
        wait_until(lambda: len(exporter.rows("open_spans")) >= 2, what="beat twice")

    assert {(row["thread"], str(row["stack_name"])) for row in exporter.rows("open_spans")} == {("main", "[]")}


def test_the_start_is_on_its_way_when_the_run_exists() -> None:
    exporter = MemoryExporter()
    run = Run(exporter)

    first = exporter.rows("run_info")
    run.finish()

    assert [row["status"] for row in first] == [RunStatus.RUNNING.code]


@pytest.mark.parametrize(
    ("code", "status"),
    [(None, RunStatus.FINISHED), (0, RunStatus.FINISHED), (3, RunStatus.FAILED), ("no", RunStatus.FAILED)],
)
def test_a_program_that_leaves_by_its_exit_code_says_how_it_ended(code: int | str | None, status: RunStatus) -> None:
    exporter = MemoryExporter()

    with pytest.raises(SystemExit), Run(exporter):
        raise SystemExit(code)

    assert exporter.rows("run_info")[-1]["status"] == status.code


def test_a_span_open_at_the_end_of_the_run_is_closed_as_interrupted() -> None:
    exporter = MemoryExporter()
    run = Run(exporter)
    span = run.start_span("endless")

    run.finish()
    span.finish()

    (row,) = exporter.rows("spans")
    assert (row["status"], row["flags"]) == (SpanStatus.INTERRUPTED.code, SPAN_FLAGS["interrupted"])


def test_faults_of_many_kinds_are_counted_under_few() -> None:
    with Run(MemoryExporter()) as run:
        for index in range(200):
            run.log_metric(f"m{index}", "no number")  # pyright: ignore[reportArgumentType]  # what untyped code may do

    assert sum(run.faults.values()) == 200
    assert len(run.faults) < 100


def test_what_is_said_goes_above_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Bar:
        @staticmethod
        def write(text: str, *, file: object) -> None:
            written.append(text)
            assert file is sys.stderr

    monkeypatch.setitem(sys.modules, "tqdm", cast("ModuleType", SimpleNamespace(tqdm=Bar)))

    say("here")

    assert written == ["rankscope: here"]


def test_nobody_to_tell_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tqdm", raising=False)
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)

    say("into the void")
