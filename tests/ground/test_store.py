"""The HTTP front speaks what clickhouse-connect asks of a server."""

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from tests.ground.stores import Store


def test_rows_inserted_come_back(clickhouse_front: Store) -> None:
    client = clickhouse_front.client
    client.command("CREATE TABLE t (a UInt64, b Nullable(String)) ENGINE = MergeTree ORDER BY a")

    client.insert("t", [[1, "one"], [2, None]], column_names=["a", "b"])

    assert client.query("SELECT a, b FROM t ORDER BY a").result_rows == [(1, "one"), (2, None)]


def test_parameters_and_settings_reach_the_engine(clickhouse_front: Store) -> None:
    client = clickhouse_front.client
    word = "it's a \\ tab\tand\nline"

    row = client.query(
        "SELECT {word:String}, getSetting('max_threads')", parameters={"word": word}, settings={"max_threads": 3}
    ).first_row

    assert row == (word, 3)


def test_so_many_values_reach_the_engine_that_no_url_holds_them(clickhouse_front: Store) -> None:
    numbers = [2**63 + number for number in range(5_000)]

    found = clickhouse_front.client.query(
        "SELECT sum(number - 9223372036854775808) FROM (SELECT arrayJoin({numbers:Array(UInt64)}) AS number)",
        parameters={"numbers": numbers},
    )

    assert found.first_row == (sum(range(5_000)),)


def test_a_raw_body_is_inserted_in_its_format(clickhouse_front: Store) -> None:
    client = clickhouse_front.client
    client.command("CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a")

    client.raw_insert("t", insert_block=b"1\n2\n", fmt="CSV", settings={"async_insert": 0})

    assert client.command("SELECT sum(a) FROM t") == 3


def test_an_error_carries_its_code_and_leaves_nothing_behind(clickhouse_front: Store) -> None:
    client = clickhouse_front.client

    with pytest.raises(DatabaseError, match="UNKNOWN_TABLE") as refused:
        client.query("SELECT * FROM no_such_table")

    assert refused.value.code == 60
    assert client.query("SELECT 1").result_rows == [(1,)]
