"""What it costs to look for secrets in lines, and to preview payloads."""

import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from rankscope.privacy import Redactor
from tests.agent.privacy.ordinary import LINES, ordinary
from tests.agent.privacy.planted import planted
from tests.bench.report import Report

pytestmark = pytest.mark.bench

ROUNDS = 200
CALLS = 20
"""A round is shorter than a scheduler's slice, so that medians are not of a busy machine."""

PROSE = "The model explains, in many words and some numbers (12.5), how the optimizer reaches a better loss: slowly. "


def microseconds(work: Callable[[], object]) -> float:
    """Of one call, the median over short rounds."""
    seconds: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(CALLS):
            work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) / CALLS * 1e6


def payload() -> dict[str, object]:
    """A call of a tool with its arguments and a conversation: 4 KiB of JSON."""
    turns = [{"role": "user" if number % 2 else "assistant", "content": PROSE * 4} for number in range(7)]
    options = {"temperature": 0.2, "top_p": 0.95, "max_new_tokens": 512, "stop": ["</s>"], "seed": 17}
    labels = {f"label_{number}": f"value of label {number}" for number in range(16)}
    return {"messages": turns, "options": options, "labels": labels, "model": "a-model-7b"}


def a_second(texts: list[str], chunk: int) -> float:
    """Texts a second, of the median chunk."""
    redact = Redactor().text
    seconds: list[float] = []
    for first in range(0, len(texts), chunk):
        started = time.perf_counter()
        for text in texts[first : first + chunk]:
            redact(text)
        seconds.append(time.perf_counter() - started)
    return chunk / statistics.median(seconds)


def test_ordinary_lines_a_second(report: Report) -> None:
    found = a_second(list(ordinary()), chunk=LINES // ROUNDS)

    report.judge("redaction, ordinary lines", found, "lines/s", sense="at least", target=100_000)


def test_lines_with_a_secret_a_second(report: Report) -> None:
    texts = [secret.text for secret in planted()]

    report.add("  lines with a secret each", a_second(texts * 50, chunk=len(texts)), "lines/s")


def test_a_preview_of_a_payload(report: Report) -> None:
    redactor, value = Redactor(), payload()
    size = len(redactor.preview(value).text)
    assert 3_500 < size <= 4_096

    cost = microseconds(lambda: redactor.preview(value))

    report.judge("preview of a 4 KiB payload", cost, "µs", sense="at most", target=60)


def test_a_preview_of_a_text(report: Report) -> None:
    redactor, text = Redactor(), PROSE * 37

    report.judge(
        "preview of a 4 KiB text", microseconds(lambda: redactor.preview(text)), "µs", sense="at most", target=60
    )
    text = PROSE * 37_000
    report.add("  of a 4 MB text", microseconds(lambda: redactor.preview(text)), "µs")


def test_a_preview_of_something_huge(report: Report) -> None:
    redactor = Redactor()
    huge: dict[str, object] = {
        "torch tensor": torch.zeros(1_000, 1_000),
        "numpy array": np.zeros((1_000, 1_000)),
        "list": list(range(1_000_000)),
    }
    for name, value in huge.items():
        cost = microseconds(lambda value=value: redactor.preview(value))
        report.judge(f"preview of a {name} of 1 M elements", cost, "µs", sense="at most", target=100)
