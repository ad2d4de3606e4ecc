"""A training program as a user writes it: every public name with the type a user sees.

mypy checks it strictly (`make types`), against the installed package, as a user's editor would; a test runs it.
"""

from typing import assert_type

import torch
from torch import nn

import rankscope


def main() -> None:
    """Watch a model, open steps and spans, log what happened."""
    run = rankscope.init("demo", "first try", config={"lr": 3e-3}, tags=["nightly"])
    assert_type(run, rankscope.Run)
    assert_type(run.id, str)

    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rankscope.watch(model, optimizer=optimizer, loss=nn.MSELoss())

    for index in range(3):
        with run.step(index) as step:
            assert_type(step, rankscope.Step)
            train(step, model, optimizer)
            run.log_metrics({"loss": 0.5})
    roll_out(run)
    ask("tensor.nonfinite_count > 0 | first")
    run.alert("done", level="info")
    assert_type(run.flush(timeout=5), bool)
    assert_type(run.url, str)
    rankscope.wait(timeout=5)
    rankscope.finish()


def train(step: rankscope.Step, model: nn.Linear, optimizer: torch.optim.Optimizer) -> None:
    """One step with a phase opened by hand."""
    with step.phase("forward"):
        loss = model(torch.zeros(1, 4)).sum()
    step.loss(loss)
    loss.backward()
    optimizer.step()


def roll_out(run: rankscope.Run) -> None:
    """A trace of its own, with a span in it."""
    with run.trace("rollout") as trace:
        assert_type(trace, rankscope.Trace)
        with run.span("generate", kind="model") as span:
            assert_type(span, rankscope.Span)
            span.add_attributes({"tokens": 17})
    assert_type(rankscope.current_run(), rankscope.Run)


def ask(text: str) -> str:
    """A query, or what is wrong with it."""
    try:
        query = rankscope.tql.parse(text)
    except rankscope.errors.RankscopeError as error:
        return str(error)
    assert_type(query, rankscope.tql.Query)
    return text


if __name__ == "__main__":
    main()
