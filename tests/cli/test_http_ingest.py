"""HTTP ingest as a part of `rankscope up`: an agent that is told nothing of what a person tells their ranks' agent."""

import asyncio
from pathlib import Path

import pytest

from rankscope.up import DataFolder
from rankscope.up._ingest import ingest_part
from rankscope.up._ports import any_free_port
from rankscope.up._probes import http_ready
from rankscope.up._public import CLOSED


def test_options_of_the_ranks_agent_in_the_environment_are_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_AGENT_EXIT_WHEN_IDLE", "1")
    monkeypatch.setenv("RANKSCOPE_AGENT_STAGE_OUT", str(tmp_path / "staged"))
    folder = DataFolder(tmp_path / "home")
    folder.prepare()

    asyncio.run(listen_once(folder))

    assert not (tmp_path / "staged").exists()


async def listen_once(folder: DataFolder) -> None:
    """Start the part, wait until it listens, and stop it."""
    port = any_free_port()
    part = ingest_part(
        "http-ingest",
        folder,
        settings={**CLOSED, "RANKSCOPE_AGENT_EXIT_WHEN_IDLE": "1"},
        listen=f"127.0.0.1:{port}",
        gateway_port=1,
        answers=lambda: http_ready(port),
    )
    await part.start()
    try:
        async with asyncio.timeout(60):
            await part.ready()
    finally:
        await part.stop()
