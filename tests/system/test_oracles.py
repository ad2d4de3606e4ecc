"""Every oracle fails when what it watches over is broken: one that cannot fail proves nothing."""

import json
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from rankscope._block import Block
from rankscope._export import SealedBatch
from rankscope._identity import Identity
from rankscope._seal import Sealer
from rankscope.testing import ManualClock
from rankscope_proto.identity import uuid7
from rankscope_proto.names import GapCause, GapClass, ProcessRole
from rankscope_proto.v1.batch_pb2 import Batch
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.system import oracles
from tests.system.oracles import Report, State, judge
from tests.system.tables import tables_of
from tests.system.truth import Outside, Truth, truth_of

RUN = "judged"
BATCHES, SPANS, SCALARS = 5, 2, 3


def identity(role: ProcessRole = ProcessRole.TRAINER) -> Identity:
    incarnation = uuid7(time.time_ns(), role.code.to_bytes(10))
    return Identity(project="default", run_id=RUN, launch_id=bytes(16), incarnation=incarnation, process_role=role)


def sealed() -> list[SealedBatch]:
    """Five batches of a trainer, each with two spans and three scalars."""
    sealer, made = Sealer(identity(), clock=ManualClock()), list[SealedBatch]()
    for number in range(BATCHES):
        spans = {"span_id": (10 * number + 1, 10 * number + 2), "name": ("a", "b"), "start": (5, 6)}
        scalars = {"name": ("number",) * SCALARS, "value": (1.5, 2.5, float(number)), "time": (7, 8, 9)}
        sealer.add(Block("spans", SPANS, spans))
        sealer.add(Block("scalars", SCALARS, scalars))
        batch = sealer.seal()
        assert batch is not None
        made.append(batch)
    return made


def gap(missing: SealedBatch, cause: GapCause = GapCause.SPOOL_CORRUPT, **rows: int) -> SealedBatch:
    """What the agent would state of a batch that is gone."""
    sealer = Sealer(identity(ProcessRole.AGENT), clock=ManualClock())
    many = len(rows)
    columns = {
        "class": (GapClass.LOST.code,) * many,
        "cause": (cause.value,) * many,
        "data_kind": tuple(rows),
        "count": tuple(rows.values()),
        "start": (5,) * many,
        "seq_from": (missing.seq,) * many,
        "seq_to": (missing.seq,) * many,
        "incarnation_hi": (int.from_bytes(missing.incarnation[:8]),) * many,
        "incarnation_lo": (int.from_bytes(missing.incarnation[8:]),) * many,
    }
    sealer.add(Block("gaps", many, columns))
    batch = sealer.seal()
    assert batch is not None
    return batch


@pytest.fixture
def store(migrated: Store) -> Store:
    return migrated


def put(store: Store, *batches: SealedBatch, token: str = "") -> None:
    for batch in batches:
        insert(store.client, Batch.FromString(batch.payload), token=token or batch.digest.hex())


def written(batches: list[SealedBatch], folder: Path) -> Truth:
    ledger = Outside(folder / "source.ledger")
    for batch in batches:
        ledger.may(batch)
        ledger.must(batch)
    return truth_of(folder)


def judged(store: Store, batches: list[SealedBatch], folder: Path, *, may_declare: Collection[str] = ()) -> Report:
    return judge(written(batches, folder), tables_of(store.client, RUN), may_declare=may_declare)


def test_a_run_that_is_all_there_is_clean(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches)

    report = judged(store, batches, tmp_path)

    assert report.is_clean, report
    assert str(report).endswith("lost 0, duplicated 0, declared lost 0")


def test_a_batch_that_is_nowhere_is_lost_with_all_its_rows(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches[:2], *batches[3:])

    report = judged(store, batches, tmp_path)

    assert report.failed == ["O1", "O4"]
    assert report.lost == SPANS + SCALARS


def test_the_last_batch_is_missed_though_no_number_is(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches[:-1])

    assert judged(store, batches, tmp_path).failed == ["O1"]


def test_a_batch_that_a_gap_names_is_not_lost_where_the_fault_may_cost_it(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches[:2], *batches[3:], gap(batches[2], spans=SPANS, scalars=SCALARS))

    report = judged(store, batches, tmp_path, may_declare={"spool_corrupt"})

    assert report.is_clean, report
    assert str(report).endswith("lost 0, duplicated 0, declared lost 5 (spool_corrupt 5)")


@pytest.mark.parametrize(
    ("cause", "is_stored"),
    [("spool_corrupt", False), ("quarantined", False), ("conflict", True), ("spool_full", False), ("ring_full", True)],
)
def test_a_tier_that_gives_up_a_batch_which_could_be_stored_is_found(
    store: Store, tmp_path: Path, cause: str, *, is_stored: bool
) -> None:
    batches = sealed()
    false = gap(batches[2], GapCause(cause), spans=SPANS, scalars=SCALARS)
    put(store, *(batch for batch in batches if is_stored or batch is not batches[2]), false)

    report = judged(store, batches, tmp_path)

    assert report.failed == ["O1 (declared)"]
    assert report.lost == 0
    assert report.declared == {cause: SPANS + SCALARS}


def test_a_full_spool_is_no_reason_for_the_loss_of_what_it_took(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches[:2], *batches[3:], gap(batches[2], GapCause.SPOOL_FULL, spans=SPANS, scalars=SCALARS))

    assert judged(store, batches, tmp_path, may_declare={"spool_full"}).failed == ["O1 (declared)"]


def test_an_unknown_end_that_names_a_batch_hides_a_loss(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches[:2], *batches[3:], gap(batches[2], GapCause.TAIL_UNKNOWN, spans=SPANS, scalars=SCALARS))

    assert judged(store, batches, tmp_path).failed == ["O1 (declared)"]


def test_a_gap_that_names_too_few_rows_does_not_balance(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches[:2], *batches[3:], gap(batches[2], spans=SPANS, scalars=SCALARS - 1))

    assert judged(store, batches, tmp_path, may_declare={"spool_corrupt"}).failed == ["O4"]


def test_a_gap_of_a_batch_found_again_is_void(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches, gap(batches[2], spans=SPANS, scalars=SCALARS))

    report = judged(store, batches, tmp_path, may_declare={"spool_corrupt"})

    assert report.is_clean, report


def half_inserted(store: Store) -> None:
    store.client.command("DELETE FROM scalars WHERE seq = 2")


def test_a_batch_of_which_one_table_has_nothing_is_lost_in_part(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches)
    half_inserted(store)

    report = judged(store, batches, tmp_path)

    assert report.failed == ["O1", "O2", "O4"]
    assert report.lost == SCALARS


def test_a_batch_under_two_tokens_is_twice(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches)
    put(store, batches[1], token="another")

    report = judged(store, batches, tmp_path)

    assert report.failed == ["O2", "O4"]
    assert report.duplicated == 1 + SPANS + SCALARS


def test_a_batch_that_no_source_sealed_is_a_fabrication(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    put(store, *batches)

    assert judged(store, batches[:-1], tmp_path).failed == ["O2"]


def test_rows_with_another_content_are_found(store: Store, tmp_path: Path) -> None:
    batches = sealed()
    other = Batch.FromString(batches[3].payload)
    other.scalars.value[0] = 100.0
    put(store, *batches[:3], *batches[4:])
    insert(store.client, other, token="other")

    assert judged(store, batches, tmp_path).failed == ["O2"]


def test_an_oracle_that_cannot_look_does_not_pass(store: Store, tmp_path: Path) -> None:
    report = judged(store, [], tmp_path)

    assert [verdict.state for verdict in report.verdicts] == [State.UNVERIFIED] * 4
    assert not report.is_clean


def test_a_row_that_never_comes_fails_o3(store: Store) -> None:
    assert oracles.fresh_row_visible(store.client, RUN, bound_s=0.1).state is State.FAILED


@pytest.mark.parametrize(
    ("p99_us", "plain_us", "state"),
    [(None, 1, State.UNVERIFIED), (40, 1, State.HELD), (60, 1, State.FAILED), (40, 0.1, State.FAILED)],
)
def test_recording_that_is_held_up_fails_o5(
    p99_us: float | None, plain_us: float, state: State, tmp_path: Path
) -> None:
    if p99_us is not None:
        (tmp_path / "source.cost").write_text(json.dumps({"p99_us": p99_us, "plain_p99_us": plain_us}))

    assert oracles.never_held_up(tmp_path, p99_us=50).state is state


@pytest.mark.parametrize(
    ("peaks", "state"), [({}, State.UNVERIFIED), ({"agent": 5}, State.HELD), ({"agent": 7}, State.FAILED)]
)
def test_a_process_that_grows_beyond_its_bound_fails_o6(peaks: dict[str, int], state: State) -> None:
    assert oracles.within_memory(peaks, {"agent": 6}).state is state
