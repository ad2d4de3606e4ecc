"""Defects that a tracing SDK of the same face is known to have, each shown absent.

1. A request for each root call: here.
2. Attributes that nothing searches: `tests/query_api/test_trace_list.py`.
3. Rank and links not shown: `tests/query_api/test_trace_detail.py`.
4. Numbers masked, secrets in camel case kept: here.
5. A row for each label and number: here.
6. A batch one too large, made by two threads: here.
7. A forked child sends its parent's rows again: here, and `test_forks.py`.
8. An index row for each event: `tests/proto/test_tables.py`.
9. A status of the loaded part only: `tests/query_api/test_trace_detail.py`.
10. Reads without the project: `tests/query_api/test_isolation.py`.
11. Tensors copied whole for a preview of 4 KiB, and their NaN lost: `tests/agent/privacy`, `tests/agent/probe`.
"""

import os
import threading

import pytest

from rankscope import Run
from rankscope.testing import MemoryExporter


def test_root_calls_travel_together() -> None:
    exporter = MemoryExporter()
    with Run(exporter) as run:

        @run.trace_op()
        def answer() -> None: ...

        for _ in range(1_000):
            answer()

    assert len(exporter.spans().roots) == 1_000
    assert len(exporter.batches) <= 10


def test_a_span_is_one_row_however_much_is_said_of_it() -> None:
    exporter = MemoryExporter()
    with Run(exporter) as run, run.trace("answer") as span:
        for number in range(100):
            span.log_metric(f"m{number}", number)
            span.add_attributes({f"a{number}": number})

    (row,) = exporter.rows("spans")
    assert len(exporter.spans()[0].metrics) == 100
    assert str(row["inputs"]) == ""


@pytest.mark.parametrize("key", ["loss_per_token", "time/token", "max_new_token", "bos_token"])
def test_a_number_whose_name_ends_like_a_secret_stays_a_number(key: str) -> None:
    exporter = MemoryExporter()
    with Run(exporter) as run, run.trace("answer", attributes={key: 2}, metrics={key: 0.5}):
        pass

    span = exporter.spans().one("answer")
    assert (span.attributes, span.metrics) == ({key: 2}, {key: 0.5})


@pytest.mark.parametrize(
    "key",
    [
        *("accessToken", "passwd", "private_key", "aws_secret_access_key", "client_secret_value", "auth"),
        *("credentials", "bearer", "apiKey", "x-api-key", "access_token", "session_cookie"),
    ],
)
def test_a_secret_is_masked_however_its_name_is_written(key: str) -> None:
    exporter = MemoryExporter()
    with (
        Run(exporter) as run,
        run.trace("answer", attributes={key: "hunter2"}, inputs={key: "hunter2"}, capture="preview"),
    ):
        pass

    assert exporter.spans().one("answer").inputs == {key: "[REDACTED]"}
    assert not any(b"hunter2" in batch.payload for batch in exporter.batches)


def test_no_batch_is_too_large_however_many_threads_record() -> None:
    exporter = MemoryExporter()
    with Run(exporter) as run:

        def work() -> None:
            for _ in range(2_000):
                run.start_span("work").finish()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    rows = [len(message.spans.span_id) for message in exporter.messages()]
    assert sum(rows) == 16_000
    assert max(rows) <= 2_000


def test_a_forked_child_sends_nothing_of_its_parent() -> None:
    exporter = MemoryExporter()
    with Run(exporter) as run:
        run.start_span("before").finish()
        before = len(exporter.batches)
        child = os.fork()
        if child == 0:
            run.flush()
            run.finish()
            os._exit(len(exporter.batches) - before)
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert exporter.spans().counts() == {"before": 1}
