"""What is inserted into `landing` is in the tables, exactly, once, or not at all."""

import math
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from rankscope_proto.columns import SECTIONS
from rankscope_proto.render_sql import objects
from rankscope_proto.v1 import batch_pb2 as pb
from tests.ground.stores import Store
from tests.proto.batches import INCARNATION, LAUNCH, SEALED, WEEK, batch, insert, migrate, number, with_rows

TARGETS = [*(section.table for section in SECTIONS), "batches", "trace_index"]
WORDS = ["", "forward", "step/forward", "device", "cuda:0", "Ünïcode ☃", "weight"]


def column(client: Client, table: str, name: str) -> list[Any]:
    """A column's values, in the order of the rows' keys."""
    return [row[0] for row in client.query(f"SELECT {name} FROM {table} ORDER BY incarnation, seq, idx").result_rows]


def counts(client: Client) -> dict[str, int]:
    """Rows per target."""
    return {table: number(client, f"SELECT count() FROM {table}") for table in TARGETS}


def rows_everywhere(*, rank: int = 0, seq: int = 0) -> pb.Batch:
    """A batch with one row in every section."""
    made = batch(rank=rank, seq=seq, strings=WORDS)
    with_rows(made, "spans", span_id=[7], trace_hi=[1], trace_lo=[2], name=[1], start=[SEALED], duration=[5])
    with_rows(made, "tensor_stats", name=[6], time=[SEALED])
    with_rows(made, "scalars", name=[1], value=[0.5], time=[SEALED])
    with_rows(made, "modules", path=[1], time=[SEALED])
    with_rows(made, "events", time=[SEALED], kind=[1])
    with_rows(made, "gaps", start=[SEALED], cause=[1], **{"class": [1]})
    with_rows(made, "run_info", status=[1], start=[SEALED])
    with_rows(made, "open_spans", heartbeat=[SEALED])
    with_rows(made, "hits", time=[SEALED], breakpoint=[1])
    with_rows(made, "captures", name=[6], time=[SEALED], data=[b"\x00"])
    with_rows(made, "collectives", entry=[SEALED], group=[1])
    with_rows(made, "clocks", time=[SEALED])
    with_rows(made, "system_stats", name=[6], time=[SEALED])
    return with_rows(made, "standings", time=[SEALED], state=[1])


def test_migrating_twice_changes_nothing(clickhouse_front: Store) -> None:
    client = clickhouse_front.client
    migrate(client)
    shown = "SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase() ORDER BY name"
    before = client.query(shown).result_rows
    insert(client, rows_everywhere())

    migrate(client)

    assert client.query(shown).result_rows == before
    assert counts(client) == dict.fromkeys(TARGETS, 1)


def test_every_row_carries_its_header_its_index_and_its_week(tables: Client) -> None:
    insert(
        tables, with_rows(batch(rank=3, seq=9, strings=WORDS), "scalars", name=[1, 3], value=[1, 2], time=[SEALED] * 2)
    )

    rows = tables.query(
        "SELECT project, run_id, launch_id, process_role, rank, local_rank, world_size, worker_index, node,"
        " incarnation, seq, idx, toUInt16(week) FROM scalars ORDER BY idx"
    ).result_rows

    head = ("default", "run-1", LAUNCH, 1, 3, 3, 4, -1, "node-a", INCARNATION, 9)
    assert rows == [(*head, 0, WEEK), (*head, 1, WEEK)]


def test_the_ledger_holds_counts_emitted_sums_mesh_and_receive_time(tables: Client) -> None:
    made = rows_everywhere(seq=4)
    made.header.emitted_spans, made.header.emitted_scalars = 100, 2**40
    made.header.mesh_axis.extend(["dp", "tp"])
    made.header.mesh_coordinate.extend([3, 1])
    made.received = SEALED + 5
    insert(tables, made)

    asked = "seq, emitted_spans, emitted_scalars, rows_spans, rows_gaps, mesh, received, boot_id, sealed, sealed_mono"
    row = tables.query(f"SELECT {asked} FROM batches").first_row

    assert row == (4, 100, 2**40, 1, 1, {"dp": 3, "tp": 1}, SEALED + 5, "boot-1", SEALED, 5)


def test_floats_come_back_bit_for_bit(tables: Client) -> None:
    values = [0.1, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
    count = len(values)
    made = batch(strings=WORDS)
    with_rows(made, "tensor_stats", name=[6] * count, time=[SEALED] * count, l2=values, mean=[math.nan] * count)
    insert(tables, with_rows(made, "scalars", name=[1] * count, time=[SEALED] * count, value=values))

    assert [value.hex() for value in column(tables, "scalars", "value")] == [value.hex() for value in values]
    assert [value.hex() for value in column(tables, "tensor_stats", "l2")] == [value.hex() for value in values]
    assert all(math.isnan(value) for value in column(tables, "tensor_stats", "mean"))


def test_a_field_is_null_where_its_bit_is_unset_and_where_it_does_not_travel(tables: Client) -> None:
    made = batch(strings=WORDS)
    with_rows(made, "tensor_stats", name=[6] * 3, time=[SEALED] * 3, step=[4, 0, 5], absmax=[1.5, 2.5, 0])
    made.tensor_stats.present.extend([(1 << 1) | (1 << 13), 1 << 13, 1 << 1])
    insert(tables, made)

    assert column(tables, "tensor_stats", "step") == [4, None, 5]
    assert column(tables, "tensor_stats", "absmax") == [1.5, 2.5, None]
    assert column(tables, "tensor_stats", "l2") == [None] * 3


def test_without_a_mask_every_carried_field_is_in_every_row(tables: Client) -> None:
    insert(
        tables, with_rows(batch(strings=WORDS), "scalars", name=[1, 1], time=[SEALED] * 2, value=[1, 2], step=[0, 9])
    )

    assert column(tables, "scalars", "step") == [0, 9]


def test_lists_and_maps_are_sliced_into_their_rows(tables: Client) -> None:
    made = batch(strings=WORDS)
    with_rows(made, "spans", span_id=[1, 2, 3], name=[1] * 3, start=[SEALED] * 3, attribute_n=[1, 0, 2])
    with_rows(made, "spans", attribute_keys=[3, 3, 5], attribute_values=[4, 5, 6], number_n=[0, 2, 0])
    with_rows(made, "spans", number_keys=[3, 6], number_values=[math.nan, math.inf], link_n=[0, 0, 1])
    with_rows(made, "spans", link_trace_hi=[2**64 - 1], link_trace_lo=[8], link_span_id=[9])
    with_rows(made, "tensor_stats", name=[6, 6], time=[SEALED] * 2, shape=[768, 3072, 5], shape_n=[2, 1])
    insert(tables, made)

    assert column(tables, "spans", "attributes") == [
        {"device": "cuda:0"},
        {},
        {"device": "Ünïcode ☃", "Ünïcode ☃": "weight"},
    ]
    numbers = column(tables, "spans", "numbers")
    assert math.isnan(numbers[1]["device"])
    assert numbers[1]["weight"] == math.inf
    assert numbers[0] == numbers[2] == {}
    assert column(tables, "spans", "link_trace_hi") == [[], [], [2**64 - 1]]
    assert column(tables, "tensor_stats", "shape") == [[768, 3072], [5]]


def test_the_read_views_show_words_for_codes_and_numbers_for_newer_ones(tables: Client) -> None:
    made = with_rows(batch(strings=WORDS), "spans", span_id=[1, 2], name=[1, 1], start=[SEALED] * 2)
    insert(tables, with_rows(made, "spans", kind=[13, 200], status=[2, 0], phase=[3, 0]))

    row = tables.query(
        "SELECT kind, status, phase, process_role, incarnation FROM spans_named ORDER BY idx"
    ).result_rows

    assert row == [
        ("system", "error", "backward", "trainer", INCARNATION.hex()),
        ("200", "", "", "trainer", INCARNATION.hex()),
    ]


def test_the_trace_index_knows_a_traces_ranks_steps_and_times(tables: Client) -> None:
    trace = {"trace_hi": [1], "trace_lo": [2], "name": [1], "span_id": [5], "duration": [50]}
    insert(tables, with_rows(batch(rank=0, strings=WORDS), "spans", start=[SEALED], step=[7], **trace), token="a")
    insert(tables, with_rows(batch(rank=1, strings=WORDS), "spans", start=[SEALED + 9], **trace), token="b")

    row = tables.query(
        "SELECT arraySort(groupUniqArrayArray(ranks)), arraySort(groupUniqArrayArray(steps)), min(first_start),"
        " max(last_end) FROM trace_index GROUP BY run_id, trace_hi, trace_lo"
    ).result_rows

    assert row == [([0, 1], [7], SEALED, SEALED + 59)]


@pytest.mark.parametrize(
    ("durations", "last_end"),
    [([-(2**63)], SEALED), ([-1, 3], SEALED + 3), ([2**63 - 1], 2**63 - 1), ([2**63 - SEALED, 5], 2**63 - 1)],
)
def test_no_foreign_duration_ends_a_trace_before_its_start(tables: Client, durations: list[int], last_end: int) -> None:
    count = len(durations)
    made = with_rows(batch(strings=WORDS), "spans", span_id=range(1, count + 1), name=[1] * count)
    insert(tables, with_rows(made, "spans", start=[SEALED] * count, duration=durations))

    assert number(tables, "SELECT max(last_end) FROM trace_index") == last_end


def test_the_same_token_adds_nothing_to_any_target(tables: Client) -> None:
    batches = [rows_everywhere(rank=rank, seq=seq) for rank in range(2) for seq in range(3)]

    for _ in range(3):
        insert(tables, *batches, token="group-1")

    expected = dict.fromkeys(TARGETS, 6) | {"trace_index": 1}
    assert counts(tables) == expected


def test_one_token_over_several_weeks_adds_nothing_on_a_retry(tables: Client) -> None:
    batches = [rows_everywhere(seq=seq) for seq in range(3)]
    for back, made in enumerate(batches):
        made.header.week = WEEK - 7 * back

    insert(tables, *batches, token="group-1")
    insert(tables, *batches, token="group-1")

    assert counts(tables) == dict.fromkeys(TARGETS, 3)


@pytest.mark.parametrize("target", TARGETS)
def test_what_one_target_refused_is_completed_by_the_same_token(tables: Client, target: str) -> None:
    tables.command(f"ALTER TABLE {target} ADD CONSTRAINT broken CHECK week < '1971-01-01'")
    with pytest.raises(DatabaseError, match="VIOLATED_CONSTRAINT"):
        insert(tables, rows_everywhere(), token="group-1")
    assert counts(tables)[target] == 0
    tables.command(f"ALTER TABLE {target} DROP CONSTRAINT broken")

    insert(tables, rows_everywhere(), token="group-1")

    assert counts(tables) == dict.fromkeys(TARGETS, 1)


def test_open_spans_vanish_a_day_after_their_heartbeat_and_nothing_else_does(tables: Client) -> None:
    made = rows_everywhere()
    now = number(tables, "SELECT toUnixTimestamp(now())") * 10**9
    with_rows(made, "open_spans", heartbeat=[now])
    made.open_spans.heartbeat[0] = now - 2 * 86_400 * 10**9
    insert(tables, made)

    for table in TARGETS:
        tables.command(f"OPTIMIZE TABLE {table} FINAL")

    assert column(tables, "open_spans", "heartbeat") == [now]
    assert counts(tables) == dict.fromkeys(TARGETS, 1)


def test_the_migrations_come_to_the_tables_that_are_declared(clickhouse_front: Store) -> None:
    client = clickhouse_front.client
    migrate(client)
    migrated = structure(client)
    for (name,) in client.query("SELECT name FROM system.tables WHERE database = currentDatabase()").result_rows:
        client.command(f"DROP TABLE {name}")

    for statement in objects().split(";\n\n"):
        client.command(statement.removesuffix(";\n"))

    assert structure(client) == migrated


def structure(client: Client) -> dict[str, Any]:
    """What each table is made of: its columns in order, its indexes, its engine, the query of a view."""
    columns = (
        "SELECT table, groupArray((name, type, compression_codec)) FROM system.columns"
        " WHERE database = currentDatabase() GROUP BY 1"
    )
    indexes = "SELECT table, name, type_full, expr, granularity FROM system.data_skipping_indices"
    kept: dict[str, list[object]] = {}
    for name, *index in client.query(f"{indexes} WHERE database = currentDatabase() ORDER BY 1, 2").result_rows:
        kept.setdefault(name, []).append(index)
    tables = "SELECT name, engine_full, as_select FROM system.tables WHERE database = currentDatabase()"
    made_of = {name: made for name, made in client.query(columns).result_rows}  # noqa: C416 - rows are lists here
    return {
        name: (made_of[name], kept.get(name), *rest)
        for name, *rest in client.query(tables).result_rows
        if "migrations" not in name
    }


def test_kept_values_are_stored_byte_for_byte(tables: Client) -> None:
    every_byte = bytes(range(256))
    chunks = [every_byte, b"", b"\x00" * 1024, every_byte[::-1]]

    made = batch(strings=WORDS)
    insert(tables, with_rows(made, "captures", name=[6] * 4, time=[SEALED] * 4, chunk=[0, 1, 2, 3], data=chunks))

    assert [bytes.fromhex(text) for text in column(tables, "captures", "hex(data)")] == chunks


def test_what_a_condition_saw_is_stored_by_name_with_nan_and_infinities(tables: Client) -> None:
    made = batch(strings=["", "nan_l2", "tensor.l2", "tensor.min", "tensor.name", "head.weight"])
    seen = {"seen_names": [2, 3, 2], "seen_values": [math.inf, -0.5, 1.0], "seen_n": [2, 1]}
    texts = {"text_names": [4], "text_values": [5], "text_n": [0, 1]}
    insert(tables, with_rows(made, "hits", time=[SEALED] * 2, breakpoint=[1, 1], **seen, **texts))

    assert column(tables, "hits", "seen") == [{"tensor.l2": math.inf, "tensor.min": -0.5}, {"tensor.l2": 1.0}]
    assert column(tables, "hits", "seen_texts") == [{}, {"tensor.name": "head.weight"}]
