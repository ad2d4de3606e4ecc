"""A watched training tells its phases by itself."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import ConfigError
from rankscope.probe.attach import attach
from rankscope.probe.torch_inner import queue_callback
from tests.agent.probe.trainings import Criterion, Model, Recorded, Row, batches, hook_count, loader, start_of, train


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_a_step_has_its_four_phases_in_order(recorded: Recorded) -> None:
    model, criterion, data = Model(), Criterion(), loader(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, optimizer=optimizer, loader=data, loss=criterion)

    for index, (codes, targets) in enumerate(data):
        with recorded.run.step(index):
            loss = criterion(model(codes), targets)
            loss.backward()
            optimizer.step()

    assert recorded.phases(0) == ["input", "forward", "backward", "optimizer"]
    assert recorded.phases(1) == ["input", "forward", "backward", "optimizer"]


def test_a_fetch_inside_a_step_is_its_input(recorded: Recorded) -> None:
    data = loader(2)
    attach(recorded.run, Model(), loader=data)
    fetches = iter(data)

    for index in range(2):
        with recorded.run.step(index):
            next(fetches)

    assert recorded.phases(0) == ["input"]
    assert recorded.phases(1) == ["input"]


def test_looking_for_a_batch_that_is_not_there_is_no_input(recorded: Recorded) -> None:
    data = loader(1)
    attach(recorded.run, Model(), loader=data)

    list(data)
    recorded.run.step(0).__enter__().__exit__(None, None, None)
    with recorded.run.step(1):
        pass

    assert recorded.phases(1) == []


def test_forward_lasts_until_the_loss_is_known(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion)

    with recorded.run.step(0):
        scores = model(batches(1)[0][0])
        with recorded.run.span("between"):
            pass
        criterion(scores, batches(1)[0][1])

    (forward,) = recorded.rows("spans", name="forward")
    (between,) = recorded.rows("spans", name="between")
    assert end_of(forward) > end_of(between)


def test_backward_begins_at_the_first_gradient_and_not_at_the_end_of_forward(recorded: Recorded) -> None:
    model = Model()
    attach(recorded.run, model)

    with recorded.run.step(0) as step:
        loss = Criterion()(model(batches(1)[0][0]), batches(1)[0][1])
        step.loss(loss)
        with recorded.run.span("between"):
            pass
        loss.backward()

    (backward,) = recorded.rows("spans", name="backward")
    (between,) = recorded.rows("spans", name="between")
    assert start_of(backward) >= end_of(between)


def test_backward_ends_after_everything_the_engine_was_asked_to_do_at_its_end(recorded: Recorded) -> None:
    # A reducer queues its own callback from a gradient hook, after the watch has queued the first of its two.
    model = Model()
    attach(recorded.run, model)

    def finalise() -> None:
        with recorded.run.span("reduction"):
            pass

    def last_bucket(_parameter: Tensor) -> None:
        queue_callback(finalise)

    model.embed.weight.register_post_accumulate_grad_hook(last_bucket)
    with recorded.run.step(0):
        Criterion()(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    (backward,) = recorded.rows("spans", name="backward")
    (reduction,) = recorded.rows("spans", name="reduction")
    assert end_of(backward) >= end_of(reduction)


def test_evaluation_outside_a_step_records_nothing(recorded: Recorded) -> None:
    model = Model()
    attach(recorded.run, model)

    with torch.no_grad():
        model(batches(1)[0][0])

    assert recorded.rows("spans") == []
    assert recorded.rows("tensor_stats") == []


def test_a_forward_that_raises_ends_its_phase(recorded: Recorded) -> None:
    class Broken(nn.Module):
        def forward(self, _x: Tensor) -> Tensor:
            raise ArithmeticError("no")

    model = Broken()
    attach(recorded.run, model)

    with pytest.raises(ArithmeticError), recorded.run.step(0):
        model(torch.zeros(1))

    assert recorded.phases(0) == ["forward"]


def test_level_0_records_phases_and_the_loss_only(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, optimizer=optimizer, loss=criterion, level=0)

    list(train(recorded.run, model, batches(1), optimizer=optimizer, criterion=criterion))

    assert recorded.phases(0) == ["forward", "backward", "optimizer"]
    assert [row["name"] for row in recorded.rows("tensor_stats")] == ["loss"]


def test_the_loader_is_still_what_it_was(recorded: Recorded) -> None:
    import pickle

    data = loader(3)
    own_class = type(data)

    watch = attach(recorded.run, Model(), loader=data)

    assert isinstance(data, own_class)
    assert len(data) == len(iter(data)) == 3
    assert type(pickle.loads(pickle.dumps(data))) is own_class  # noqa: S301 - our own bytes
    watch.detach()
    assert type(data) is own_class


def test_a_loader_of_ones_own_is_timed_too(recorded: Recorded) -> None:
    class Numbers:
        def __iter__(self) -> Iterator[int]:
            yield from range(2)

    data = Numbers()
    attach(recorded.run, Model(), loader=data)

    for index in data:
        with recorded.run.step(index):
            pass

    assert recorded.phases(0) == recorded.phases(1) == ["input"]


def test_a_loader_that_cannot_be_wrapped_is_refused_with_the_way_out(recorded: Recorded) -> None:
    model = Model()

    with pytest.raises(ConfigError, match=r'list cannot be timed.*step\.phase\("input"\)'):
        attach(recorded.run, model, loader=[1, 2])

    assert hook_count(model) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": torch.nn.functional.cross_entropy}, r"loss is a function.*step\.loss"),
        ({"optimizer": 3}, "optimizer is a int"),
        ({"level": 4}, "level 4"),
        ({"every": 0}, "every=0"),
    ],
)
def test_wrong_options_are_refused(recorded: Recorded, options: Row, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attach(recorded.run, Model(), **options)


def end_of(row: Row) -> int:
    return row["start"] + row["duration"]
