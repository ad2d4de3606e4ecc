"""What of a span's payloads and texts is kept: nothing unless asked for, and never a secret."""

import threading
from contextlib import suppress
from typing import Any

import pytest
import torch

from rankscope import Run
from rankscope._heartbeat import open_span_block
from rankscope._tracing_options import TracingOptions
from rankscope.privacy import REDACTED, Redactor
from rankscope.testing import MemoryExporter
from rankscope_proto.names import RedactionState, SpanStatus

KEY = "sk-" + "a1B2c3D4e5F6g7H8i9J0"
BEARER = "Bearer abcdefghijklmnop0123456789"
NOTHING, CLEAN, MASKED = 0, RedactionState.NOTHING_TO_REDACT.code, RedactionState.REDACTED.code


class Ours:
    """A payload that notes who looks at it."""

    def __init__(self) -> None:
        self.looked = 0

    def __repr__(self) -> str:
        self.looked += 1
        return "ours"


def test_nothing_is_captured_unless_asked_for() -> None:
    exporter, payload = MemoryExporter(), Ours()

    with Run(exporter) as run, suppress(KeyError), run.span("a", inputs=payload) as span:
        span.set_output(payload)
        raise KeyError("message")

    (row,) = exporter.rows("spans")
    assert (row["inputs"], row["outputs"], row["error_preview"], row["error_type"]) == ("", "", "", "KeyError")
    assert (row["capture"], row["redaction_state"], payload.looked) == (0, NOTHING, 0)


def test_preview_keeps_inputs_output_and_the_message_of_an_exception() -> None:
    exporter, given = MemoryExporter(), {"b": [1, 2], "a": "x"}

    with Run(exporter) as run, suppress(ValueError), run.span("a", capture="preview", inputs=given) as span:
        given["a"] = "changed later"
        span.set_output(None)
        raise ValueError("no such thing")

    (row,) = exporter.rows("spans")
    assert (row["inputs"], row["outputs"], row["error_preview"]) == ('{"a":"x","b":[1,2]}', "null", "no such thing")
    assert (row["capture"], row["redaction_state"]) == (2, CLEAN)


def test_the_output_is_previewed_as_it_is_when_the_span_ends() -> None:
    exporter, result = MemoryExporter(), dict[str, int]()

    with Run(exporter) as run, run.span("a", capture="preview") as span:
        span.set_output({"first": 1})
        span.set_output(result)
        result["late"] = 1

    assert exporter.rows("spans")[0]["outputs"] == '{"late":1}'


def test_a_run_that_records_nothing_looks_at_no_payload() -> None:
    payload = Ours()

    with Run(None) as run, run.span("a", capture="preview", inputs=payload) as span:
        span.set_output(payload)

    assert payload.looked == 0


def test_capture_is_not_inherited() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.trace("root", capture="preview", inputs=1), run.span("child", inputs=2):
        pass

    assert {row["name"]: row["inputs"] for row in exporter.rows("spans")} == {"root": "1", "child": ""}


def test_secrets_are_masked_wherever_text_of_a_span_lies() -> None:
    exporter = MemoryExporter()
    fields: dict[str, Any] = {"thread_id": f"t {KEY}", "rollout_id": KEY, "capture": "preview"}

    with Run(exporter) as run, suppress(ValueError), run.trace(f"call {KEY}", **fields) as root:
        root.add_attributes({"header": BEARER, "api_key": "Qw9zz", f"k {KEY}": 1, "deep": {"password": "x"}})
        root.add_event(f"sent {KEY}", {"password": "hunter2", "text": BEARER})
        with root.span("inner", capture="preview", inputs={"authorization": "x", "text": KEY}) as inner:
            inner.set_output([KEY])
        raise ValueError(f"failed with {KEY}")

    payloads = b"".join(batch.payload for batch in exporter.batches)
    for secret in (KEY, KEY[3:], BEARER[7:], "hunter2", "Qw9zz"):
        assert secret.encode() not in payloads, secret
    assert REDACTED.encode() in payloads
    assert {row["redaction_state"] for row in exporter.rows("spans")} == {MASKED}


def test_a_secret_in_a_name_is_masked_in_the_paths_of_its_children_and_in_heartbeats() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.trace(f"call {KEY}"):
        recording = run._recording  # pyright: ignore[reportPrivateUsage]  # what the sealing thread does
        recording.append(open_span_block(recording))
        with run.span("child"):
            pass

    assert not any(KEY.encode() in batch.payload for batch in exporter.batches)
    child = next(row for row in exporter.rows("spans") if row["name"] == "child")
    assert str(child["path"]).endswith("/child")
    assert child["redaction_state"] == NOTHING


def test_a_secret_that_lies_across_the_edge_of_a_bound_leaves_no_part_of_itself() -> None:
    exporter = MemoryExporter()
    jwt = "eyJ" + "a" * 40 + ".eyJ" + "b" * 60 + "." + "c" * 43

    with Run(exporter) as run:
        for index in range(40):
            filler = "n" * (500 - index)
            with run.span(f"{filler} {jwt}", attributes={"a": "x" * (32_700 - index) + " " + jwt}):
                pass

    payloads = b"".join(batch.payload for batch in exporter.batches)
    assert b"eyJaaaaaaaa" not in payloads


def test_equal_texts_of_many_spans_are_not_taken_for_masked_ones() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        for index in range(6):
            with suppress(ValueError), run.span(f"step {index % 2}", thread_id=f"t {index % 2}") as span:
                span.add_attributes({f"k {index % 2}": f"v {index % 2}", "nan": float("nan")})
                span.log_metric(f"m {index % 2}", float("nan"))
                raise ValueError

    assert [row["redaction_state"] for row in exporter.rows("spans")] == [NOTHING] * 6


def test_numbers_are_never_masked() -> None:
    exporter = MemoryExporter()
    numbers = {"loss_per_token": 0.5, "token": 7, "api_key": 1.0}

    with Run(exporter) as run, run.span("a", attributes=numbers, metrics=numbers):
        pass

    (row,) = exporter.rows("spans")
    assert (row["numbers"], row["metrics"], row["redaction_state"]) == (numbers, numbers, NOTHING)


def test_the_users_own_names_and_patterns_are_masked_too() -> None:
    exporter = MemoryExporter()
    redactor = Redactor(keys=["patient"], patterns=[r"MRN-\d+"], hook=lambda text: text.replace("Doe", "D."))

    with Run(exporter, tracing=TracingOptions(redactor=redactor)) as run:
        run.start_span("MRN-123", attributes={"patient": "x y", "note": "Doe"}).finish()

    (row,) = exporter.rows("spans")
    assert (row["name"], row["attributes"]) == (REDACTED, {"patient": REDACTED, "note": "D."})


def test_names_are_masked_in_the_thread_that_seals_and_each_once() -> None:
    seen: list[tuple[str, int]] = []

    def hook(text: str) -> str:
        seen.append((text, threading.get_ident()))
        return text

    exporter = MemoryExporter()
    with Run(exporter, tracing=TracingOptions(redactor=Redactor(hook=hook))) as run:
        for _ in range(50):
            with run.span("work", attributes={"device": "cuda:0"}):
                pass

    assert sorted(text for text, _ in seen if text in ("work", "cuda:0")) == ["cuda:0", "work"]
    assert threading.get_ident() not in {ident for text, ident in seen if text in ("work", "cuda:0")}


def test_a_tensor_as_a_label_is_its_shape_and_type_and_never_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = MemoryExporter()

    def text(self: torch.Tensor) -> str:
        raise AssertionError("a tensor's text waits for its device")

    monkeypatch.setattr(torch.Tensor, "__str__", text)
    monkeypatch.setattr(torch.Tensor, "__repr__", text)

    ones: Any = torch.ones(2)
    with Run(exporter) as run, run.span("a", attributes={"x": torch.zeros(3, 4), ones: 1}, thread_id=ones) as span:
        span.add_event("e", {"x": torch.zeros(5)})
        span.log_metric(ones, 1.0)

    label = str(exporter.rows("spans")[0]["attributes"])
    assert "3,4" in label.replace(" ", "")
    assert "float32" in label


def test_a_preview_that_is_long_counts_in_the_budget_of_text() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("a", capture="preview", inputs="x" * 100_000) as span:
        pass

    (row,) = exporter.rows("spans")
    assert len(str(row["inputs"]).encode()) <= 4_096 <= span.text_bytes + 512
    assert row["status"] == SpanStatus.OK.code
