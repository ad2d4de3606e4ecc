"""Every query of the manual is answered by the service, and explained with SQL."""

import httpx
import pytest

from tests.query_api import story
from tests.tql.test_manual import EXAMPLES


@pytest.mark.parametrize("text", EXAMPLES)
async def test_a_query_of_the_manual_is_answered_and_explained(client: httpx.AsyncClient, text: str) -> None:
    answer = await client.post("/api/v1/tql", json={"query": text, "run": story.RUN})
    explained = await client.post("/api/v1/tql/explain", json={"query": text, "run": story.RUN})

    assert answer.status_code == explained.status_code == 200, answer.text + explained.text
    assert answer.json()["returned"] == len(answer.json()["items"])
    assert explained.json()["sql"].startswith(("SELECT", "WITH"))
