"""The store the contract's tests insert into."""

import pytest
from clickhouse_connect.driver.client import Client

from tests.ground.stores import Store


@pytest.fixture
def tables(migrated: Store) -> Client:
    """A database with every object of the contract, empty."""
    return migrated.client
