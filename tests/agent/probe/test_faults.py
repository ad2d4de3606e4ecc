"""The faults of the example training are decided by the seed and are real."""

import sys

import pytest
import torch
from torch.utils.data import Dataset

from rankscope.examples import ill_nets
from rankscope.examples.chars import CharModel, Text
from rankscope.examples.faults import EARLIEST, SLOW_BATCH_S, SlowReads, draw_faults, overflow_in


@pytest.mark.parametrize("seed", range(50))
def test_faults_keep_their_distance(seed: int) -> None:
    faults = draw_faults(seed, ranks=4, steps=60, layers=4)

    assert faults.straggler is not None
    assert faults.nonfinite is not None
    assert EARLIEST <= faults.straggler.since_step < faults.nonfinite.step - 3 < 60
    assert faults.nonfinite.layer in {f"blocks.{index}" for index in range(4)}


def test_faults_depend_on_the_seed_alone() -> None:
    drawn = [draw_faults(seed, ranks=4, steps=60, layers=4) for seed in (1, 1, 2)]

    assert drawn[0] == drawn[1] != drawn[2]


def test_a_training_too_short_for_faults_is_refused() -> None:
    with pytest.raises(ValueError, match="39 steps are too few"):
        draw_faults(1, ranks=4, steps=39, layers=4)


@pytest.mark.parametrize("steps", ["-1", "0", "26", "29"])
def test_so_is_one_of_an_ill_net_with_the_fewest_that_do(
    steps: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ill_nets", "dead", "--steps", steps])

    with pytest.raises(SystemExit) as ended:
        ill_nets.arguments()

    assert ended.value.code == 2
    assert f"--steps {steps} are too few for a fault to show: at least 30" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [*ill_nets.QUERIES, "none"])
def test_the_shortest_training_of_an_ill_net_has_room_for_any_fault(kind: str) -> None:
    drawn = [ill_nets.drawn(kind, seed=seed, steps=ill_nets.FEWEST) for seed in range(50)]

    steps = [fault.step for fault in drawn if fault.step is not None]
    assert all(ill_nets.EARLIEST <= step < ill_nets.FEWEST - 1 for step in steps)


def test_the_overflow_happens_in_the_step_asked_for_and_in_no_other() -> None:
    text = Text(context=8)
    model = CharModel(text.vocabulary, context=8, width=16, layers=2, heads=2)
    overflow_in(model.blocks[1], step=1)
    codes = text[0][0].unsqueeze(0)

    outputs = [model(codes).detach() for _ in range(3)]

    assert [bool(output.isfinite().all()) for output in outputs] == [True, False, True]
    assert torch.equal(outputs[0], outputs[2])


class Waits(Dataset[int]):
    """Ten items."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


def test_reads_are_slow_from_their_step_on(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("rankscope.examples.faults.time.sleep", waits.append)
    reads = SlowReads(Waits(), batch_size=2, since_step=3)

    items = [reads[index] for index in range(10)]

    assert items == list(range(10))
    assert len(reads) == 10
    assert waits == [SLOW_BATCH_S / 2] * 4
