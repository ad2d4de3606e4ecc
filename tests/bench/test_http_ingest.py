"""What a client of the HTTP ingest waits for: the largest request there is, to the disk and back."""

import statistics
import time
import uuid
from pathlib import Path

import httpx
import pytest

from rankscope._settings import Settings
from rankscope.front import Front, FrontOptions
from tests.agent.front.clients import body, whole
from tests.bench.report import Report

pytestmark = pytest.mark.bench

REQUESTS = 20
LABELS = {"env": "CartPole-v1", "try": 7, "model": "policy-v3"}
NUMBERS = {"reward": 0.5, "gen_ai.usage.input_tokens": 12}


def test_a_request_of_500_events(tmp_path: Path, report: Report) -> None:
    front = Front(FrontOptions(port=0), Settings(home=tmp_path, spool=tmp_path))
    front.start()
    try:
        with httpx.Client(base_url=front.url, timeout=30) as client:
            took_ms = sorted(sent_ms(client, number) for number in range(REQUESTS))
    finally:
        front.close()

    report.judge("HTTP ingest, 500 events, p95", took_ms[-2], "ms", sense="at most", target=250)
    report.add("  median", statistics.median(took_ms), "ms")


def sent_ms(client: httpx.Client, number: int) -> float:
    """How long a request of 250 whole spans took."""
    spans = range(number * 250 + 1, number * 250 + 251)
    events = [event for span in spans for event in whole(f"{span:016x}", attributes=LABELS, metrics=NUMBERS, step=42)]
    content = body(*events)
    begun = time.perf_counter()
    answer = client.post("/api/runs/r/traces/events", content=content, headers={"Idempotency-Key": str(uuid.uuid4())})
    took_ms = (time.perf_counter() - begun) * 1e3
    assert answer.status_code == 200
    return took_ms
