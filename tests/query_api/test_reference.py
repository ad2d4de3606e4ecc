"""The OpenAPI document tells the truth: every example answers as documented."""

from typing import Any

import httpx
import pytest

from rankscope_query_api.reference import examples, operation_name
from tests.query_api.asking import get
from tests.query_api.examples import REQUESTS, asked

NOT_RECORDED = {
    *("show_metrics", "show_storage", "delete_run", "export_traces", "export_trace", "download_capture"),
}
"""Operations whose answer differs each time, takes away what the others answer from, or is no one JSON document."""


@pytest.mark.parametrize("operation", REQUESTS)
async def test_every_documented_example_answers_as_documented(client: httpx.AsyncClient, operation: str) -> None:
    document = await get(client, "/api/v1/openapi.json")

    answer = await asked(client, document, operation)

    assert answer.json() == examples()[operation]["answer"], "python -m tests.query_api.examples records them anew"


async def test_every_route_has_a_recorded_example_a_sentence_and_the_shape_of_errors(client: httpx.AsyncClient) -> None:
    document = await get(client, "/api/v1/openapi.json")

    operations: dict[str, Any] = {
        operation_name(operation): operation for methods in document["paths"].values() for operation in methods.values()
    }
    assert set(operations) == set(REQUESTS) | NOT_RECORDED
    for name, operation in operations.items():
        assert operation["description"].endswith((".", "null: none."))
        assert "default" in operation["responses"]
        assert name in NOT_RECORDED or "example" in operation["responses"]["200"]["content"]["application/json"]


async def test_every_parameter_is_described(client: httpx.AsyncClient) -> None:
    document = await get(client, "/api/v1/openapi.json")

    silent = [
        f"{path}: {parameter['name']}"
        for path, methods in document["paths"].items()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ]
    assert not silent
