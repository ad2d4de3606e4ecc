"""`finish(wait="durable")`: who needs more than the spool waits for the store, and hears when it does not come."""

from pathlib import Path

import pytest

from rankscope import Run
from rankscope.errors import Unavailable
from rankscope.spool import spools
from rankscope.testing import MemoryExporter
from tests.agent.programs import run_program
from tests.agent.spooled import rows_in
from tests.agent.test_init import STEP
from tests.ground.stacks import Stack


def test_what_is_durable_is_in_the_store_when_finish_returns(stack: Stack) -> None:
    source = """
    import rankscope
    run = rankscope.init("durable", run_id="durable", quiet=True)
    for index in range(3_000):
        with run.step(index):
            run.log_metric("loss", index)
    run.finish(wait="durable", timeout=60)
    """

    ended = run_program(source, stack.home)

    assert ended.code == 0, ended.err
    found = stack.get("/runs/durable/completeness?project=durable")
    sections = {section["section"]: section["stored"] for section in found["sections"]}
    assert found["complete"]
    assert (sections["spans"], sections["scalars"], sections["run_info"]) == (3_000, 3_000, 2)


def test_a_store_that_does_not_come_in_time_is_said_with_where_the_data_is(tmp_path: Path) -> None:
    source = STEP + 'run.finish(wait="durable", timeout=0.3)\n'

    ended = run_program(source, tmp_path, RANKSCOPE_AGENT="none")

    (folder,) = spools(tmp_path / "spool")
    assert ended.code == 1
    assert f"the store does not have all of run r yet; the data is safe in {folder}" in ended.err
    assert rows_in(tmp_path / "spool", "events")[-1]["kind"] == "end_of_stream"


def test_a_wait_for_the_store_can_be_called_off() -> None:
    exporter = MemoryExporter()
    exporter.is_durable = False
    run = Run(exporter)
    run.hurry()

    with pytest.raises(Unavailable, match="the data is safe in memory"):
        run.finish(wait="durable", timeout=3_600)

    assert exporter.is_closed


def test_a_wait_for_anything_else_is_an_error_that_ends_nothing() -> None:
    exporter = MemoryExporter()
    run = Run(exporter)

    with pytest.raises(ValueError, match='"spooled", "accepted" or "durable"'):
        run.finish(wait="sent")  # pyright: ignore[reportArgumentType]  # what a checker would refuse

    run.log_metric("a", 1)
    run.finish()
    assert len(exporter.rows("scalars")) == 1
