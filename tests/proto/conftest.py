"""The store the contract's tests insert into."""

import pytest
from clickhouse_connect.driver.client import Client

from tests.ground.stores import Store
from tests.proto.batches import migrate


@pytest.fixture
def tables(clickhouse_front: Store) -> Client:
    """A database with every object of the contract, empty."""
    migrate(clickhouse_front.client)
    return clickhouse_front.client
