"""What untyped code may give: nothing raises into training, and none of it runs in the sealing thread."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rankscope import Run
from rankscope._run_info import config_json
from rankscope.privacy import Redactor
from rankscope.testing import MemoryExporter


class MuteError(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("mute")


class Mute:
    """Has no text, no number and no truth."""

    def __str__(self) -> str:
        raise MuteError

    __repr__ = __str__

    def __float__(self) -> float:
        raise MuteError

    def __bool__(self) -> bool:
        raise MuteError


class Masked:
    """Raises when it is asked what it is."""

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise RuntimeError("nobody")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Listener:
    """Notes in which thread its text is made."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def __str__(self) -> str:
        self.threads.add(threading.get_ident())
        return "a/b"

    __repr__ = __str__


def late(run: Run, act: Callable[[Any], object]) -> None:
    with run.span("late") as span:
        act(span)


CALLS: dict[str, Callable[[Any], object]] = {
    "attribute key": lambda run: run.span("a", attributes={Mute(): 1}),
    "attribute value": lambda run: run.span("a", attributes={"a": Mute()}),
    "attributes of a number": lambda run: run.span("a", attributes=5),
    "attributes of a list": lambda run: run.span("a", attributes=[1]),
    "attributes without truth": lambda run: run.span("a", attributes=Mute()),
    "attributes of a trace": lambda run: run.trace("a", attributes=5),
    "attributes of a started span": lambda run: run.start_span("a", attributes=Mute()).finish(),
    "attributes of a child": lambda run: run.span("a").span("b", attributes=5),
    "metrics of a number": lambda run: run.span("a", metrics=5),
    "metrics without truth": lambda run: run.span("a", metrics=Mute()),
    "metric key": lambda run: run.span("a", metrics={Mute(): 1}),
    "metric value": lambda run: run.span("a", metrics={"a": Mute()}),
    "metrics of a trace": lambda run: run.trace("a", metrics=Mute()),
    "links of a number": lambda run: run.span("a", links=5),
    "links of numbers": lambda run: run.span("a", links=[1, None, ("a", "b", "c")]),
    "thread id": lambda run: run.span("a", thread_id=Mute()),
    "rollout id": lambda run: run.span("a", rollout_id=Mute()),
    "add_attributes key": lambda run: late(run, lambda span: span.add_attributes({Mute(): 1})),
    "attribute that is nobody": lambda run: run.start_span("a", attributes={"a": Masked()}).finish(),
    "inputs that are nobody": lambda run: run.start_span("a", capture="preview", inputs=Masked()).finish(),
    "an output that is nobody": lambda run: run.start_span("a", capture="preview").finish(output=Masked()),
    "attributes that are nobody": lambda run: run.start_span("a", attributes=Masked()).finish(),
    "metrics that are nobody": lambda run: run.start_span("a", metrics=Masked()).finish(),
    "metric that is nobody": lambda run: late(run, lambda span: span.log_metric(Masked(), Masked())),
    "links that are nobody": lambda run: run.start_span("a", links=[Masked()]).finish(),
    "a link that is nobody": lambda run: late(run, lambda span: span.add_link(Masked())),
    "thread id that is nobody": lambda run: run.start_span("a", thread_id=Masked(), rollout_id=Masked()).finish(),
    "an event of nobody": lambda run: late(run, lambda span: span.add_event("e", {"a": Masked()})),
    "an event's attributes that are nobody": lambda run: late(run, lambda span: span.add_event("e", Masked())),
    "endless number": lambda run: run.start_span("a", attributes={"a": 10**5000}, metrics={"a": 10**5000}).finish(),
    "endless number of an event": lambda run: late(run, lambda span: span.add_event("e", {"a": 10**5000})),
    "add_attributes list": lambda run: late(run, lambda span: span.add_attributes([])),
    "span.log_metric": lambda run: late(run, lambda span: span.log_metric([Mute()], Mute())),
    "log_metric key": lambda run: run.log_metric(Mute(), 1),
    "log_metric list": lambda run: run.log_metric([], 1),
    "log_metric value": lambda run: run.log_metric("a", Mute()),
    "log_metrics of nothing": lambda run: run.log_metrics(None),
    "log_metrics of a number": lambda run: run.log_metrics(5),
    "log_metrics of a list": lambda run: run.log_metrics([Mute()]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_an_odd_value_never_reaches_training(call: Callable[[Any], object]) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        call(run)
        run.log_metric("after", 1)

    assert "after" in {row["name"] for row in exporter.rows("scalars")}
    assert not exporter.rows("gaps")
    assert exporter.headers()[-1].emitted_spans == len(exporter.rows("spans"))


@pytest.mark.parametrize("what", ["attributes of a number", "metrics of a number", "links of numbers"])
def test_a_container_that_is_none_is_counted_and_the_span_is_kept(what: str) -> None:
    with Run(MemoryExporter()) as run:
        CALLS[what](run)

    assert sum(run.faults.values()) >= 1


def test_links_that_are_links_are_kept_beside_those_that_are_not() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a") as near, run.span("b", links=[1, near]):  # pyright: ignore[reportArgumentType]
        pass

    assert exporter.rows("spans")[0]["link_span_id"] == [near.id]


def test_the_text_of_an_object_is_made_in_the_thread_that_gives_it() -> None:
    exporter, name, own = MemoryExporter(), Listener(), threading.get_ident()
    given: Any = name

    with Run(exporter) as run, run.span("a/b", attributes={given: given}, metrics={given: 1}, thread_id=given):
        pass

    (row,) = exporter.rows("spans")
    assert (row["name"], row["path"], row["attributes"], row["metrics"]) == ("a/b", "a%2Fb", {"a/b": "a/b"}, {"a/b": 1})
    assert name.threads == {own}


def test_a_configuration_whose_errors_have_no_text_is_kept_as_far_as_it_goes() -> None:
    assert "MuteError" in config_json({"a": Mute()}, Redactor())


def test_an_exception_without_text_passes_through_a_span_unchanged() -> None:
    with Run(MemoryExporter()) as run, pytest.raises(MuteError), run.span("a"):
        raise MuteError
