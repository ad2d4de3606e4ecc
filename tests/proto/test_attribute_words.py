"""A text attribute is found by its word in the index alone, whenever its row came, and no other attribute with it."""

from clickhouse_connect.driver.client import Client

from rankscope_proto.sections_spans import ATTRIBUTE_WORDS, attribute_word
from rankscope_proto.storage import migrations
from tests.ground.stores import Store
from tests.proto.batches import SEALED, batch, insert, with_rows

FOUND = f"SELECT span_id FROM spans WHERE has({ATTRIBUTE_WORDS}, {{word:String}}) ORDER BY span_id"
LOOK_ALIKES = [("a", "b"), ("a", ":b"), ("a:", "b"), ("1:a", "b"), ("", "ab"), ("ab", ""), ("é", "b"), ("a", "b ")]
"""Pairs that are one text once they are written together in some way."""


def insert_spans(client: Client, *attributes: tuple[str, str]) -> None:
    """One span for each attribute; ids count from 1."""
    strings = [text for pair in attributes for text in pair]
    count = len(attributes)
    made = with_rows(batch(strings=strings), "spans", span_id=range(1, count + 1), name=[0] * count)
    with_rows(made, "spans", start=[SEALED] * count, attribute_n=[1] * count)
    with_rows(made, "spans", attribute_keys=range(0, 2 * count, 2), attribute_values=range(1, 2 * count, 2))
    insert(client, made)


def test_no_two_attributes_share_a_word(tables: Client) -> None:
    insert_spans(tables, *LOOK_ALIKES)

    found = [tables.query(FOUND, parameters={"word": attribute_word(*pair)}).result_rows for pair in LOOK_ALIKES]

    assert found == [[(number,)] for number in range(1, len(LOOK_ALIKES) + 1)]


def test_a_word_is_looked_up_in_the_index_and_the_map_is_not_read(tables: Client) -> None:
    insert_spans(tables, *LOOK_ALIKES)

    asked = {"word": attribute_word("a", "b")}
    plan = [line for (line,) in tables.query(f"EXPLAIN indexes = 1 {FOUND}", parameters=asked).result_rows]

    assert [line.strip() for line in plan if "Output: " in line] == ["Output: span_id"] * 2
    assert any("Name: attribute_words" in line for line in plan)


def test_spans_that_are_older_than_the_index_are_found(clickhouse_front: Store) -> None:
    client = clickhouse_front.client
    older, newer = migrations()[:3], migrations()[3:]
    for statement in (statement for migration in older for statement in migration.statements):
        client.command(statement)
    insert_spans(client, ("a", "b"), ("c", "d"))

    for statement in (statement for migration in newer for statement in migration.statements):
        client.command(statement)

    assert client.query(FOUND, parameters={"word": attribute_word("c", "d")}).result_rows == [(2,)]
