"""Emitted = stored + lost holds for what is read of a spool, whatever was refused before and damaged after."""

from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.spool import SpoolReader, _writer
from rankscope_proto.columns import SECTIONS
from rankscope_proto.names import GapCause
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.spool.sources import Source, frames, own, writer

COUNT = 24


def stored(batch: Batch) -> Counter[str]:
    """Rows by section."""
    return Counter(
        {one.name: len(cast("list[object]", getattr(getattr(batch, one.name), one.key))) for one in SECTIONS}
    )


def declared(batch: Batch) -> Counter[str]:
    """Rows that its gap rows declare lost."""
    lost: Counter[str] = Counter()
    for kind, count in zip(batch.gaps.data_kind, batch.gaps.count, strict=True):
        lost[batch.strings[kind]] += count
    return lost


def refuse(source: Source) -> None:
    """Seals a batch that finds no room, as a full disk has it: the next one says what was lost with it."""
    source.sealer.take_back((source.seal(),), kept={"gaps"}, cause=GapCause.SPOOL_FULL)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    refused=st.sets(st.integers(0, COUNT - 2), max_size=8),
    damaged=st.sets(st.integers(0, COUNT - 2), max_size=8),
    seed=st.integers(0, 2**16),
)
def test_emitted_is_stored_and_lost_after_refusals_and_damage(
    refused: set[int], damaged: set[int], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_writer, "SEGMENT_BYTES", 2_048)
    monkeypatch.setattr(_writer, "MIN_SEGMENT_BYTES", 2_048)
    source = Source(seed, who=own())
    spool = writer(tmp_path, who=source.who)
    for seq in range(COUNT):
        if seq in refused:
            refuse(source)
        else:
            assert spool.append(source.seal(), is_last=seq == COUNT - 1)
    spool.close()
    for seq in damaged - refused:
        spoil(spool.folder, source.batches[seq].payload)

    reader = SpoolReader(spool.folder)
    damage = reader.recover()
    read = [Batch.FromString(frame.payload) for frame in frames(reader)]
    reader.close()

    balance: Counter[str] = Counter()
    for batch in read:
        balance.update(stored(batch))
        balance.update(declared(batch))
    for one in damage:
        balance.update(one.rows_by_section)
    last = read[-1].header
    emitted = Counter({one.name: int(getattr(last, f"emitted_{one.name}")) for one in SECTIONS})
    assert +balance == +emitted
    covered = {seq for one in damage for seq in range(one.seq_from, one.seq_to + 1)}
    assert damaged - refused <= covered
    assert covered <= damaged | refused


def spoil(folder: Path, payload: bytes) -> None:
    """Changes a byte of the batch with this payload."""
    for path in folder.glob("*.seg"):
        place = path.read_bytes().find(payload)
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place + len(payload) // 2)
                old = file.read(1)[0]
                file.seek(place + len(payload) // 2)
                file.write(bytes([old ^ 0x55]))
