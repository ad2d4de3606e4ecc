"""A watch changes what it captures while training runs, on all ranks at the same step."""

import json
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import ConfigError
from rankscope.probe import switching
from rankscope.probe.attach import attach
from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.depth import Depth, Key
from rankscope.probe.rows import Row as TensorRow
from rankscope_proto.names import Role
from tests.agent.probe.trainings import (
    ACTIVATION,
    GRAD,
    WEIGHT,
    Criterion,
    Model,
    Recorded,
    batches,
    hook_count,
    names,
    train,
)

ACTIVATION_GRAD = Role.ACTIVATION_GRAD.code


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


class Rank:
    """One rank of a training: a model, its watch, and its steps."""

    def __init__(
        self, configuration: CaptureConfiguration, *, recorded: Recorded | None = None, file: Path | None = None
    ) -> None:
        self.recorded = recorded or Recorded()
        self.model, self.criterion = Model(), Criterion()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        run = self.recorded.run
        probe = attach(run, self.model, loss=self.criterion, configuration=configuration, capture_file=file)
        self.watch = probe.watch

    def train(self, first: int, last: int) -> None:
        """Train the steps from first to last."""
        for index in range(first, last + 1):
            codes, targets = batches(1)[0]
            with self.recorded.run.step(index):
                self.optimizer.zero_grad()
                self.criterion(self.model(codes), targets).backward()

    def captured(self, role: int = WEIGHT) -> list[int]:
        """The steps in which tensors of a role were captured."""
        return sorted({row["step"] for row in self.recorded.rows("tensor_stats", role=role, name="head.weight")})


def test_another_configuration_holds_from_its_step_on() -> None:
    rank = Rank(CaptureConfiguration(level=1, every=4))

    rank.watch.configure(CaptureConfiguration(level=2, every=2, budget=None), from_step=5)
    rank.train(0, 9)

    assert rank.captured() == [0, 4, 6, 8]
    tables = {row["step"] for row in rank.recorded.rows("tensor_stats", name="blocks.1") if row["std"] is not None}
    assert tables == {6, 8}


def test_without_a_step_it_holds_from_the_next_on() -> None:
    rank = Rank(CaptureConfiguration(level=0))
    rank.train(0, 1)

    rank.watch.configure(CaptureConfiguration(level=1, every=1, budget=None))
    rank.train(2, 3)

    assert rank.captured() == [2, 3]


def test_hooks_are_put_on_and_taken_off_with_the_level() -> None:
    rank = Rank(CaptureConfiguration(level=0))
    layers = [module for module in rank.model.modules() if module is not rank.model]
    counts = [hook_count(*layers)]

    for step, level in enumerate((1, 2, 0)):
        rank.watch.configure(CaptureConfiguration(level=level))
        rank.train(step, step)
        counts.append(hook_count(*layers))

    assert counts == [0, 6, 12, 0]


def test_the_intervals_of_what_is_missing_end_and_new_ones_begin() -> None:
    rank = Rank(CaptureConfiguration(level=1, every=4))
    rank.watch.configure(CaptureConfiguration(level=2, every=4), from_step=3)

    rank.train(0, 4)

    def told(cause: str) -> list[tuple[str, int | None, int | None, bool]]:
        rows = rank.recorded.rows("gaps", cause=cause)
        return [(row["detail"][:7], row["step_from"], row["step_to"], row["end"] is not None) for row in rows]

    assert told("level") == [
        ("level 1", None, None, False),
        ("level 1", None, 2, True),
        ("level 2", 3, None, False),
    ]
    assert len(told("sampled")) == 1  # the stride is what it was: its interval goes on


def test_ranks_that_read_one_file_change_at_the_same_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "LOOKED_AT_EVERY_NS", 0)
    file = tmp_path / "capture.json"
    ranks = [Rank(CaptureConfiguration(level=1, every=100), file=file) for _ in range(2)]
    ranks[0].train(1, 3)
    ranks[1].train(1, 1)  # it lags behind

    file.write_text(json.dumps({"level": 2, "every": 3, "budget": None, "from_step": 5}))
    ranks[0].train(4, 9)
    ranks[1].train(2, 9)

    assert ranks[0].captured() == ranks[1].captured() == [6, 9]


def test_a_file_that_is_wrong_changes_nothing_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(switching, "LOOKED_AT_EVERY_NS", 0)
    file = tmp_path / "capture.json"
    file.write_text('{"levle": 2}')
    rank = Rank(CaptureConfiguration(level=1, every=2), file=file)

    with caplog.at_level(logging.WARNING):
        rank.train(0, 3)
    file.write_text('{"level": 1, "every": 5, "budget": null}')
    rank.train(4, 6)

    assert [record.getMessage() for record in caplog.records] == [
        f"{file} changes nothing: the configuration has no levle; it has "
        + ", ".join(CaptureConfiguration.__dataclass_fields__)
    ]
    assert rank.captured() == [0, 2, 5]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "huge"])
def test_what_is_no_file_of_a_configuration_holds_nobody_up_and_is_said_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(switching, "LOOKED_AT_EVERY_NS", 0)
    file = tmp_path / "capture.json"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "folder":
        file.mkdir()
    else:
        with file.open("wb") as written:
            written.truncate(2**40)
    rank = Rank(CaptureConfiguration(level=1, every=2), file=file)

    with caplog.at_level(logging.WARNING):
        rank.train(0, 3)

    (said,) = [record.getMessage() for record in caplog.records]
    told = "it has more than 1,048,576 bytes" if kind == "huge" else f"it is a {kind}; write the JSON into a file"
    assert said.startswith(f"{file} changes nothing: {told}")
    assert rank.captured() == [0, 2]


def test_a_step_that_has_passed_already_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "capture.json"
    file.write_text('{"level": 1, "every": 1, "budget": null, "from_step": 3}')
    rank = Rank(CaptureConfiguration(level=0), file=file)

    with caplog.at_level(logging.WARNING):
        rank.train(7, 7)

    assert rank.captured() == [7]
    assert "from step 3 on, which was before step 7" in caplog.text


def test_what_a_file_asked_for_before_and_has_not_begun_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "LOOKED_AT_EVERY_NS", 0)
    file = tmp_path / "capture.json"
    ranks = [Rank(CaptureConfiguration(level=1, every=100), file=file) for _ in range(2)]

    file.write_text(json.dumps({"level": 1, "every": 1, "budget": None, "from_step": 4}))
    ranks[0].train(1, 1)  # the other rank does not look before the file is another
    file.write_text(json.dumps({"level": 1, "every": 1, "budget": None, "from_step": 6}))
    for rank in ranks:
        rank.train(2, 7)

    assert [rank.captured() for rank in ranks] == [[6, 7], [6, 7]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"from_step": -1}',
        '{"from_step": true}',
        '{"from_step": "3"}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_file_of_something_else_is_no_order(text: str) -> None:
    with pytest.raises(ConfigError):
        switching.read_order(text)


class Watcher:
    """Asks for some tensors beyond the configuration, and remembers what it is told."""

    def __init__(self, raised: Mapping[Key, Depth], *, precise: Collection[Key] = ()) -> None:
        self.wanted = raised
        self._precise = precise
        self.seen: list[tuple[str, int, float | None]] = []
        self.rows: list[TensorRow] = []

    def raised(self, step: int, /) -> Mapping[Key, Depth]:
        return self.wanted if step < 3 else {}

    def precise(self, key: Key, /) -> bool:
        return key in self._precise

    def measured(self, row: TensorRow, values: Tensor, /) -> None:
        del values
        self.seen.append((row.subject.name, row.step, row.numbers.l2))

    def settled(self, rows: Sequence[TensorRow], /) -> None:
        self.rows += rows

    def closed(self) -> None:
        """Nothing is kept open."""


def test_single_tensors_are_looked_at_more_closely_in_steps_that_are_not_captured(recorded: Recorded) -> None:
    rank = Rank(CaptureConfiguration(level=1, every=100), recorded=recorded)
    rank.watch.observer = Watcher(
        {
            ("blocks.1", ACTIVATION): Depth.TABLE,
            ("blocks.1.linear", ACTIVATION): Depth.NORMS,
            ("blocks.1.linear", ACTIVATION_GRAD): Depth.NORMS,
            ("head.weight", GRAD): Depth.TABLE,
        }
    )

    rank.train(1, 3)
    hooks = hook_count(*rank.model.blocks[1].modules())

    def found(step: int) -> dict[tuple[str, int], bool]:
        rows = recorded.rows("tensor_stats", step=step)
        return {(row["name"], row["role"]): row["std"] is not None for row in rows if row["l2"] is not None}

    assert found(2) == {
        ("blocks.1", ACTIVATION): True,
        ("blocks.1.linear", ACTIVATION): False,
        ("blocks.1.linear", ACTIVATION_GRAD): False,
        ("head.weight", GRAD): True,
    }
    assert found(3) == {}
    assert hooks == 1  # the block's own; the layer's is off again


def test_a_level_0_watch_looks_at_what_is_asked_for_too(recorded: Recorded) -> None:
    rank = Rank(CaptureConfiguration(level=0), recorded=recorded)
    rank.watch.observer = Watcher({("head", ACTIVATION): Depth.FINITE, ("embed.weight", WEIGHT): Depth.NORMS})

    rank.train(1, 1)

    assert names(recorded.rows("tensor_stats")) == ["head", "loss", "embed.weight"]


def test_a_precise_tensor_is_told_in_its_hook_and_all_rows_when_the_step_ends(recorded: Recorded) -> None:
    key = ("blocks.0", ACTIVATION)
    watcher = Watcher({key: Depth.NORMS}, precise=[key])
    rank = Rank(CaptureConfiguration(level=1, every=100), recorded=recorded)
    rank.watch.observer = watcher
    told: list[int] = []

    def note(_module: nn.Module, _args: object) -> None:
        told.append(len(watcher.seen))

    rank.model.blocks[1].register_forward_pre_hook(note)
    rank.train(1, 1)

    ((name, step, l2),) = watcher.seen
    assert (name, step) == ("blocks.0", 1)
    assert l2 == next(row.numbers.l2 for row in watcher.rows if row.subject.name == "blocks.0")
    assert told == [1]
    assert [row.subject.name for row in watcher.rows] == names(recorded.rows("tensor_stats"))


def test_what_a_path_names_and_what_is_near(recorded: Recorded) -> None:
    watch = Rank(CaptureConfiguration(), recorded=recorded).watch

    assert ("blocks.1.linear.weight", GRAD) in watch.keys_of("blocks.1.linear")
    assert watch.keys_of("head", [Role.ACTIVATION]) == [("head", ACTIVATION)]
    assert watch.keys_of("loss") == [("loss", ACTIVATION)]
    assert watch.keys_of("blcks.1") == []
    assert "blocks.1" in watch.nearest("blcks.1")


def test_training_goes_on_unchanged_while_configurations_change() -> None:
    def losses(rank: Rank) -> list[Tensor]:
        return list(
            train(rank.recorded.run, rank.model, batches(4), optimizer=rank.optimizer, criterion=rank.criterion)
        )

    torch.manual_seed(1)
    steady = Rank(CaptureConfiguration(level=0))
    torch.manual_seed(1)
    changing = Rank(CaptureConfiguration(level=0))
    for step, level in enumerate((3, 1, 2)):
        changing.watch.configure(CaptureConfiguration(level=level, every=1), from_step=step)

    assert all(map(torch.equal, losses(steady), losses(changing)))
    assert isinstance(changing.model, nn.Module)
    assert changing.watch.guard.failures == 0
