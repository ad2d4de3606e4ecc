"""The OpenAPI document: what FastAPI derives, with recorded requests and answers and the shape of errors.

The examples in `examples.json` are answers that were given: a test asks for each of them again, of a store with the
same data, and compares.
"""

from importlib.resources import files
from typing import Any, TypeAlias

import orjson

Document: TypeAlias = dict[str, Any]

ERROR_SCHEMA: Document = {
    "type": "object",
    "required": ["code", "message", "hint", "position", "expected"],
    "properties": {
        "code": {"type": "string", "description": "A word for programs."},
        "message": {"type": "string", "description": "What happened, and to which value."},
        "hint": {"type": ["string", "null"], "description": "What to do now."},
        "position": {
            "description": "Where in the query's text, 1-based; in the body where that is no JSON.",
            "oneOf": [
                {
                    "type": "object",
                    "required": ["line", "column", "length"],
                    "properties": {name: {"type": "integer"} for name in ("line", "column", "length")},
                },
                {"type": "null"},
            ],
        },
        "expected": {
            "description": "What would have been accepted.",
            "type": ["array", "null"],
            "items": {"type": "string"},
        },
    },
}
"""The one shape of every error."""


def examples() -> dict[str, Document]:
    """Recorded requests by operation: `path`, `query` and `body` as they were sent, and the `answer`."""
    text = files("rankscope_query_api").joinpath("examples.json").read_bytes()
    return orjson.loads(text)


def described(document: Document) -> Document:
    """The document with examples and errors; done once, it stays as it is."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    if "Error" in schemas:
        return document
    schemas["Error"] = ERROR_SCHEMA
    recorded = examples()
    for methods in document["paths"].values():
        for operation in methods.values():
            _describe(operation, recorded.get(operation_name(operation)))
    return document


def operation_name(operation: Document) -> str:
    """The name examples are kept under: that of the function that answers."""
    return operation["summary"].lower().replace(" ", "_")


def _describe(operation: Document, example: Document | None) -> None:
    error: Document = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation["responses"].pop("422", None)
    operation["responses"]["default"] = {"description": "What went wrong.", "content": error}
    if example is None:
        return
    given = {**example["path"], **example["query"]}
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in given:
            parameter["example"] = given[parameter["name"]]
    if example["body"] is not None:
        operation["requestBody"]["content"]["application/json"]["example"] = example["body"]
    operation["responses"]["200"]["content"] = {"application/json": {"example": example["answer"]}}
