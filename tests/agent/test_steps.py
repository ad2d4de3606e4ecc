"""Training steps, their phases, and what belongs to them."""

import asyncio
import threading

import pytest

from rankscope import Run, Step
from rankscope._identity import Identity
from rankscope._root_error import Deliberate
from rankscope.testing import ManualClock, MemoryExporter
from rankscope_proto.identity import step_trace_id
from rankscope_proto.names import SPAN_FLAGS, Phase, SpanKind


def identity(rank: int) -> Identity:
    return Identity("p", "r", b"l" * 16, bytes([rank]) * 16, rank=rank, world_size=2)


def by_name(exporter: MemoryExporter) -> dict[object, dict[str, object]]:
    return {row["name"]: row for row in exporter.rows("spans")}


def fail_during(step: Step, phase: Phase) -> None:
    step.begin_phase(phase)
    raise RuntimeError


class Seen:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def step_started(self, step: Step, /) -> None:
        self.calls.append(("started", step.step))

    def step_ended(self, step: Step, /) -> None:
        self.calls.append(("ended", step.step))

    def run_finishing(self) -> None:
        self.calls.append(("finishing", -1))


def test_a_step_has_the_same_trace_on_all_ranks() -> None:
    traces: set[object] = set()
    for rank in range(2):
        exporter = MemoryExporter()
        with Run(exporter, identity=identity(rank)) as run, run.step(7, microstep=1):
            pass
        (row,) = exporter.rows("spans")
        traces.add((row["trace_hi"], row["trace_lo"]))
        assert (row["name"], row["step"], row["microstep"]) == ("step", 7, 1)
        assert (row["kind"], row["flags"]) == (SpanKind.SYSTEM.code, SPAN_FLAGS["in_step_trace"])

    assert traces == {step_trace_id("r", b"l" * 16, 7)}


def test_a_span_in_a_step_is_its_child_and_a_trace_there_has_a_tree_of_its_own() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.step(3) as step, run.span("work"), run.trace("rollout"), run.span("turn"):
        pass

    rows = by_name(exporter)
    assert rows["work"]["parent_span_id"] == step.id
    assert (rows["work"]["step"], rows["work"]["flags"]) == (3, SPAN_FLAGS["in_step_trace"])
    assert (rows["rollout"]["parent_span_id"], rows["rollout"]["step"], rows["rollout"]["flags"]) == (0, 3, 0)
    assert (rows["rollout"]["link_trace_hi"], rows["rollout"]["link_span_id"]) == ([step.trace_hi], [step.id])
    assert rows["turn"]["trace_lo"] == rows["rollout"]["trace_lo"] != step.trace_lo


def test_phases_by_hand_are_children_with_their_phase() -> None:
    exporter, clock = MemoryExporter(), ManualClock()

    with Run(exporter, clock=clock) as run, run.step(0) as step:
        for phase in Phase:
            with step.phase(phase.value), run.span(f"in {phase.value}"):
                clock.advance(10)

    rows = by_name(exporter)
    for phase in Phase:
        row = rows[phase.value]
        assert (row["phase"], row["duration"], row["parent_span_id"]) == (phase.code, 10, step.id)
        assert rows[f"in {phase.value}"]["path"] == f"step/{phase.value}/in {phase.value}"
        assert rows[f"in {phase.value}"]["phase"] == 0


def test_what_runs_in_a_microbatch_says_so_and_nothing_beside_it_does() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.step(0) as step:
        for number in range(2):
            with step.phase("forward", microbatch=number), run.span(f"layer {number}"):
                pass
        with step.phase("optimizer"):
            pass

    rows = exporter.rows("spans")
    assert [(row["name"], row.get("microbatch")) for row in rows] == [
        *(("layer 0", 0), ("forward", 0), ("layer 1", 1), ("forward", 1), ("optimizer", None), ("step", None))
    ]
    assert {row["path"] for row in rows} >= {"step/forward", "step/forward/layer 0"}


@pytest.mark.parametrize("microbatch", [-1, 2**32, 0.5, "first"])
def test_a_wrong_microbatch_is_refused(microbatch: object) -> None:
    with Run(MemoryExporter()) as run, run.step(0) as step, pytest.raises(ValueError, match="a microbatch is a whole"):
        step.phase("forward", microbatch=microbatch)  # pyright: ignore[reportArgumentType]  # what users may pass


def test_a_wrong_phase_names_the_choices() -> None:
    with Run(MemoryExporter()) as run, run.step(0) as step, pytest.raises(ValueError, match="input, forward, backward"):
        step.phase("lunch")


@pytest.mark.parametrize("microstep", [-1, 2**32, 0.5])
def test_a_wrong_microstep_is_said_at_once(microstep: int) -> None:
    with Run(MemoryExporter()) as run, pytest.raises(ValueError, match="a microstep is a whole number"):
        run.step(0, microstep)


def test_of_automatic_phases_one_is_open_at_most() -> None:
    exporter, clock = MemoryExporter(), ManualClock()

    with Run(exporter, clock=clock) as run, run.step(0) as step:
        for phase in (Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD):
            step.begin_phase(phase)
            clock.advance(10)
        step.end_phase(Phase.FORWARD)
        step.end_phase(Phase.BACKWARD)
        step.end_phase(Phase.BACKWARD)

    durations = [(row["name"], row["duration"]) for row in exporter.rows("spans")]
    assert durations == [("forward", 20), ("backward", 10), ("step", 30)]


def test_spans_made_during_an_automatic_phase_belong_to_it() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.step(0) as step:
        step.begin_phase(Phase.FORWARD)
        with run.span("inside"):
            pass
        step.end_phase(Phase.FORWARD)
        with run.span("outside"):
            pass

    rows = by_name(exporter)
    assert (rows["inside"]["path"], rows["outside"]["path"]) == ("step/forward/inside", "step/outside")


def test_while_a_phase_by_hand_is_open_hooks_open_none() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.step(0) as step:
        step.begin_phase(Phase.INPUT)
        with step.phase("forward"):
            step.begin_phase(Phase.FORWARD)
            step.end_phase(Phase.FORWARD)
        step.begin_phase(Phase.BACKWARD)

    assert [row["name"] for row in exporter.rows("spans")] == ["input", "forward", "backward", "step"]


def test_a_phase_open_at_the_end_ends_with_the_step_even_on_an_error() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        step = run.step(0)
        with pytest.raises(RuntimeError), step:
            fail_during(step, Phase.BACKWARD)
    step.begin_phase(Phase.OPTIMIZER)

    rows = by_name(exporter)
    assert set(rows) == {"backward", "step"}
    assert rows["step"]["error_type"] == "RuntimeError"


def test_a_step_adopts_the_last_fetch_before_it_as_its_input() -> None:
    exporter, clock = MemoryExporter(), ManualClock()

    with Run(exporter, clock=clock) as run:
        recording = run._recording  # pyright: ignore[reportPrivateUsage]  # what the probe is given
        for _ in range(2):
            start = (clock.wall_ns(), clock.mono_ns())
            clock.advance(100)
            recording.note_input(*start)
        clock.advance(5)
        for index in range(2):
            with run.step(index):
                clock.advance(10)

    first = [(row["name"], row["duration"], row["phase"]) for row in exporter.rows("spans")]
    assert first == [("input", 100, Phase.INPUT.code), ("step", 115, 0), ("step", 10, 0)]


def test_listeners_hear_of_steps_and_of_the_loss() -> None:
    seen, losses = Seen(), list[tuple[int, object]]()

    with Run(MemoryExporter()) as run:
        recording = run._recording  # pyright: ignore[reportPrivateUsage]  # what the probe is given
        recording.add_step_listener(seen)
        recording.add_loss_listener(lambda step, loss: losses.append((step.step, loss)))
        with run.step(5) as step:
            assert recording.current_step() is step
            step.loss("the loss")
        assert recording.current_step() is None
        recording.remove_step_listener(seen)
        with run.step(6):
            pass

    assert seen.calls == [("started", 5), ("ended", 5)]
    assert losses == [(5, "the loss")]


def test_a_listener_that_fails_is_counted_and_training_goes_on() -> None:
    class Broken(Seen):
        def step_started(self, step: Step, /) -> None:
            raise RuntimeError("broken")

    exporter = MemoryExporter()

    with Run(exporter) as run:
        run._recording.add_step_listener(Broken())  # pyright: ignore[reportPrivateUsage]  # what the probe is given
        with run.step(0), run.step(1):
            pass

    assert len(exporter.rows("spans")) == 2
    assert sum(run.faults.values()) == 2


def test_what_one_listener_raises_on_purpose_is_raised_when_all_have_heard_of_the_end() -> None:
    class Stopping(Seen):
        def step_ended(self, step: Step, /) -> None:
            raise Deliberate("stop")

    seen = Seen()

    with Run(MemoryExporter()) as run:
        for listener in (Stopping(), seen):
            run._recording.add_step_listener(listener)  # pyright: ignore[reportPrivateUsage]  # what the probe is given
        with pytest.raises(Deliberate, match="stop"), run.step(0):
            pass

    assert ("ended", 0) in seen.calls


def steps_of(exporter: MemoryExporter) -> dict[object, object]:
    return {row["name"]: row["step"] for row in exporter.rows("scalars")}


def test_tasks_whose_steps_overlap_have_their_metrics_on_their_own() -> None:
    exporter = MemoryExporter()

    async def train(run: Run, index: int, *, turns: int) -> None:
        with run.step(index):
            for _ in range(turns):
                await asyncio.sleep(0)
            run.log_metric(f"m{index}", 1)
            with run.trace("rollout"):
                await asyncio.sleep(0)

    async def both(run: Run) -> None:
        await asyncio.gather(train(run, 1, turns=1), train(run, 2, turns=3))

    with Run(exporter) as run:
        asyncio.run(both(run))
        assert run._recording.current_step() is None  # pyright: ignore[reportPrivateUsage]  # what the probe reads

    assert steps_of(exporter) == {"m1": 1, "m2": 2}
    assert sorted(str(row["step"]) for row in exporter.rows("spans") if row["name"] == "rollout") == ["1", "2"]


def test_threads_whose_steps_overlap_have_their_metrics_on_their_own_and_leave_none_behind() -> None:
    exporter = MemoryExporter()
    both, first_left = threading.Barrier(2), threading.Event()

    def train(run: Run, index: int) -> None:
        with run.step(index):
            both.wait(10)
            run.log_metric(f"m{index}", 1)
            if index == 2:
                first_left.wait(10)
        first_left.set()

    with Run(exporter) as run:
        threads = [threading.Thread(target=train, args=(run, index)) for index in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run._recording.current_step() is None  # pyright: ignore[reportPrivateUsage]  # what the probe reads
        run.log_metric("after", 1)

    assert steps_of(exporter) == {"m1": 1, "m2": 2, "after": None}


def test_a_thread_without_a_step_of_its_own_is_in_the_process_step() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.step(4):
        thread = threading.Thread(target=run.log_metric, args=("loss", 1))
        thread.start()
        thread.join()

    assert steps_of(exporter) == {"loss": 4}


def test_steps_left_out_of_order_leave_no_step_behind() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        first, second = run.step(1), run.step(2)
        for step in (first, second):
            step.__enter__()
        first.__exit__(None, None, None)
        run.log_metric("in second", 1)
        second.__exit__(None, None, None)
        run.log_metric("after", 1)

    assert steps_of(exporter) == {"in second": 2, "after": None}
