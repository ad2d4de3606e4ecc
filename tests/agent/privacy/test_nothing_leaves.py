"""A secret that is given anywhere leaves the process nowhere: not in a batch, and so in no file and no request."""

from collections.abc import Callable
from typing import Any

import pytest

from rankscope import Run
from rankscope._run_info import RunInfo
from rankscope._tracing_options import TracingOptions
from rankscope.privacy import Redactor
from rankscope.testing import MemoryExporter

SECRET = "gh" + "p_" + "Z9y8" * 9
PERSON = "Ada Lovelace"


class NamedError(Exception):
    pass


def fail(run: Run, **given: Any) -> None:
    with pytest.raises(RuntimeError), run.span("fails", **given):
        raise RuntimeError(f"refused {SECRET}")


def finish(run: Run, text: str, **given: Any) -> None:
    with run.span("s", capture="preview", **given) as span:
        span.set_output({"answer": [text]})
        span.add_attributes({"late": text})
        span.add_event(f"event {text}", {"note": text})


PLACES: dict[str, Callable[[Run, str], object]] = {
    "name": lambda run, text: run.start_span(f"call {text}").finish(),
    "name of a trace": lambda run, text: run.trace(f"call {text}").start().finish(),
    "thread and rollout": lambda run, text: run.start_span("s", thread_id=text, rollout_id=f"r {text}").finish(),
    "attribute": lambda run, text: run.start_span("s", attributes={"note": f"see {text}"}).finish(),
    "attribute's key": lambda run, text: run.start_span("s", attributes={f"of {text}": "x", text: 1}).finish(),
    "structured attribute": lambda run, text: run.start_span("s", attributes={"note": {"deep": [text]}}).finish(),
    "inputs": lambda run, text: run.start_span("s", capture="preview", inputs={"q": text}).finish(),
    "inputs by key": lambda run, text: run.start_span("s", capture="preview", inputs={"password": text}).finish(),
    "output, late attribute, event": finish,
    "metric of a span": lambda run, text: run.start_span("s", metrics={f"of {text}": 1}).finish(),
    "metric": lambda run, text: run.log_metrics({f"of {text}": 1, text: 2}),
    "alert": lambda run, text: run.alert(f"title {text}", f"text {text}"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_leaves_nowhere(place: str) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        PLACES[place](run, SECRET)

    assert not any(SECRET.encode() in batch.payload for batch in exporter.batches)


@pytest.mark.parametrize("place", PLACES)
def test_what_a_users_hook_takes_out_leaves_nowhere(place: str) -> None:
    exporter = MemoryExporter()
    redactor = Redactor(hook=lambda text: text.replace(PERSON, "someone"))

    with Run(exporter, tracing=TracingOptions(redactor=redactor)) as run:
        PLACES[place](run, PERSON)

    assert not any(PERSON.encode() in batch.payload for batch in exporter.batches)


@pytest.mark.parametrize("capture", ["off", "preview"])
def test_a_secret_in_an_errors_message_leaves_nowhere(capture: str) -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        fail(run, capture=capture)

    assert not any(SECRET.encode() in batch.payload for batch in exporter.batches)
    (row,) = exporter.rows("spans")
    assert (row["error_type"], row["error_preview"]) == (
        "RuntimeError",
        "refused [REDACTED]" if capture == "preview" else "",
    )


def test_the_users_rules_hold_for_the_configuration_and_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", "--employee-badge", "77-1234", "--note=EMP-12"])
    exporter = MemoryExporter()
    redactor = Redactor(keys=["badge"], patterns=[r"EMP-\d+"])
    info = RunInfo(name="EMP-12", config={"my_badge": "77-1234", "note": "by EMP-12"}, tags=("EMP-12",))

    with Run(exporter, info=info, tracing=TracingOptions(redactor=redactor)):
        pass

    row = exporter.rows("run_info")[0]
    assert row["command"] == "train.py --employee-badge [REDACTED] --note=[REDACTED]"
    assert row["config"] == '{"my_badge": "[REDACTED]", "note": "by [REDACTED]"}'
    assert not any(secret in batch.payload for secret in (b"77-1234", b"EMP-12") for batch in exporter.batches)


def test_numbers_under_the_name_of_a_secret_stay_numbers() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        run.log_metric("loss_per_token", 0.25)
        given = {"time/token": 2, "password": 7, "token": "abc"}
        run.start_span("s", attributes=given, metrics={"loss_per_token": 0.5}).finish()

    (row,) = exporter.rows("spans")
    assert row["attributes"] == {"token": "[REDACTED]"}
    assert row["numbers"] == {"time/token": 2.0, "password": 7.0}
    assert row["metrics"] == {"loss_per_token": 0.5}
    assert [(scalar["name"], scalar["value"]) for scalar in exporter.rows("scalars")] == [("loss_per_token", 0.25)]
