"""Text of any length: it is cut where it is too long, and no row takes others with it."""

import json
from collections import Counter

import pytest

from rankscope import Run
from rankscope._block import Block, Column
from rankscope._bounds import TEXT_BYTES
from rankscope._run_info import RunInfo
from rankscope._seal import MAX_BYTES
from rankscope.testing import MemoryExporter
from rankscope_proto.columns import SECTIONS
from rankscope_proto.declaration import Wire
from rankscope_proto.names import SPAN_FLAGS, GapCause
from rankscope_proto.v1.batch_pb2 import Batch
from tests.ground.processes import wait_until

TIME = 1_750_000_000_000_000_000
HUGE = "x" * 5_000_000
KEY = "sk-" + "a1B2c3D4e5F6g7H8i9J0"
EXPANDED_BYTES = 32 * 2**20
"""What the gateway takes of a batch at most once every text is written out."""


def expanded(batch: Batch) -> int:
    """Bytes of a batch's text, each written out wherever it is said."""
    words = [len(text.encode()) for text in batch.strings]
    columns = (
        _indexes(getattr(batch, section.name), field.name)
        for section in SECTIONS
        for field in section.fields
        if field.wire is Wire.DICT
    )
    return sum(words[index] for column in columns for index in column)


def _indexes(message: object, name: str, /) -> list[int]:
    return list(getattr(message, name))


def assert_all_acceptable(exporter: MemoryExporter) -> None:
    """Every batch is one the gateway takes."""
    for sealed in exporter.batches:
        assert len(sealed.payload) <= MAX_BYTES
        assert sealed.rows <= 20_000
        assert expanded(Batch.FromString(sealed.payload)) <= EXPANDED_BYTES


def test_every_text_of_the_declaration_has_a_bound() -> None:
    declared = {
        section.name: {field.name for field in section.fields if field.wire in (Wire.DICT, Wire.STRING)}
        for section in SECTIONS
    }

    assert {section: set(bounds) for section, bounds in TEXT_BYTES.items()} == declared


def test_a_span_with_text_of_megabytes_is_cut_and_its_neighbours_are_stored() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        for _ in range(500):
            with run.span("before"):
                pass
        failing = type(HUGE, (Exception,), {})
        with pytest.raises(failing), run.span("big", thread_id=HUGE, rollout_id="é" * 600):
            raise failing
        for _ in range(500):
            with run.span("after", attributes={HUGE: 1}, metrics={HUGE: 1}):
                pass

    rows = exporter.rows("spans")
    (big,) = (row for row in rows if row["name"] == "big")
    assert Counter(str(row["name"]) for row in rows) == {"before": 500, "big": 1, "after": 500}
    assert [len(str(big[name]).encode()) for name in ("thread_id", "rollout_id", "error_type")] == [512] * 3
    assert {row["flags"] for row in rows if row["name"] != "before"} == {SPAN_FLAGS["truncated"]}
    assert len(exporter.rows("events")) == 1
    assert not exporter.rows("gaps")
    assert_all_acceptable(exporter)


def test_links_beyond_the_bound_are_left_out_and_the_span_says_so() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run, run.span("linked", links=[("1" * 32, "1" * 16)] * 300_000):
        pass

    (row,) = exporter.rows("spans")
    assert row["flags"] == SPAN_FLAGS["truncated"]
    assert_all_acceptable(exporter)


def test_long_text_said_by_many_rows_is_spread_over_batches() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        ring = run._recording.ring  # pyright: ignore[reportPrivateUsage]  # to give no more than it keeps
        for index in range(3_000):
            with run.span("a", attributes={"prompt": "x" * 30_000}):
                pass
            if index % 200 == 0:
                wait_until(lambda: not ring.rows(), what="take what waits")

    assert len(exporter.rows("spans")) == 3_000
    assert_all_acceptable(exporter)


def test_one_call_with_more_metrics_than_a_batch_holds_is_stored_whole() -> None:
    exporter = MemoryExporter()

    with Run(exporter) as run:
        run.log_metrics({f"{index}/{'m' * 500}": index for index in range(25_000)}, step=3)

    rows = exporter.rows("scalars")
    assert [row["value"] for row in rows] == list(range(25_000))
    assert {row["step"] for row in rows} == {3}
    assert not exporter.rows("gaps")
    assert_all_acceptable(exporter)


def test_a_block_is_divided_with_the_lists_of_its_rows() -> None:
    exporter = MemoryExporter()
    count = 5_000
    columns: dict[str, Column] = {
        "path": [f"m{index}" for index in range(count)],
        "parameters": [f"p{index}" for index in range(count) for _ in range(index % 3)],
        "parameter_shapes": ["1"] * sum(index % 3 for index in range(count)),
        "parameter_dtypes": ["float32"] * sum(index % 3 for index in range(count)),
        "parameter_n": [index % 3 for index in range(count)],
        "time": [TIME] * count,
    }

    with Run(exporter) as run:
        run._recording.append(Block("modules", count, columns))  # pyright: ignore[reportPrivateUsage]  # as the probe does

    rows = exporter.rows("modules")
    assert [row["path"] for row in rows] == columns["path"]
    assert [row["parameters"] for row in rows] == [[f"p{index}"] * (index % 3) for index in range(count)]
    assert_all_acceptable(exporter)


def test_what_a_person_says_of_a_run_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", HUGE])
    exporter = MemoryExporter()
    config = {"é" * 700_000: 1, "k" * 1_000_000: 2}

    info = RunInfo(HUGE, config, tuple(f"{index}{'x' * 1_000}" for index in range(3_000)), {"a": HUGE})

    with Run(exporter, info=info) as run:
        run.log_metric(HUGE, 1)

    assert [len(str(row["name"])) for row in (*exporter.rows("run_info"), *exporter.rows("scalars"))] == [512] * 3
    assert not exporter.rows("gaps")
    assert_all_acceptable(exporter)


def test_a_row_that_nothing_makes_small_is_lost_alone() -> None:
    exporter = MemoryExporter()
    ranges: dict[str, Column] = {"name": ["t"], "shape": [1] * 5_000_000, "shape_n": [5_000_000], "time": [TIME]}

    with Run(exporter) as run:
        run.log_metric("before", 1)
        run._recording.append(Block("tensor_stats", 1, ranges))  # pyright: ignore[reportPrivateUsage]  # as the probe does
        run.log_metric("after", 1)

    (gap,) = exporter.rows("gaps")
    assert (gap["cause"], gap["data_kind"], gap["count"]) == (GapCause.OVERSIZE, "tensor_stats", 1)
    assert [row["name"] for row in exporter.rows("scalars")] == ["before", "after"]
    assert_all_acceptable(exporter)


def test_of_a_secret_that_lies_across_the_bound_nothing_is_kept() -> None:
    exporter = MemoryExporter()

    def across(most: int) -> str:
        return f"{'x' * (most - 9)} {KEY} and more"

    with Run(exporter) as run:
        run.alert(across(512), across(16_384))
        run.log_metric(across(512), 1)
        run.log_metrics({f"y{across(511)}": 2})
        with run.span("a", metrics={across(512): 3}):
            pass

    (alert,) = (row for row in exporter.rows("events") if row["kind"] == "alert")
    assert len(json.loads(str(alert["payload"]))["text"]) == 16_384
    texts = [alert["payload"], alert["name"], *(row["name"] for row in exporter.rows("scalars"))]
    assert [len(str(text)) for text in texts[1:]] == [512] * 3
    assert not any(KEY[:5] in str(text) for text in (*texts, exporter.rows("spans")))
