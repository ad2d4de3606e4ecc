"""Renders the reference of the SQL endpoint: `python -m rankscope_query_api.sql.reference > query_api/VIEWS.md`.

A test compares the committed page with what this gives.
"""

import sys
import textwrap
from collections.abc import Iterable
from importlib.resources import files
from string import Template

from rankscope_query_api.sql import functions
from rankscope_query_api.sql.reading import MAX_BYTES, MAX_NESTING, MAX_NODES
from rankscope_query_api.sql.views import VIEWS, View


def reference() -> str:
    """Text of the page."""
    text = files("rankscope_query_api.sql").joinpath("introduction.md").read_text()
    limits = {"max_bytes": f"{MAX_BYTES:,}", "max_nodes": f"{MAX_NODES:,}", "max_nesting": str(MAX_NESTING)}
    parts = [Template(text).substitute(limits), *(_view(view) for view in VIEWS.values()), _functions()]
    return "\n".join(parts)


def _view(view: View) -> str:
    rows = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in view.columns]
    head = ["| column | type | meaning |", "| --- | --- | --- |"]
    return "\n".join([f"## {view.name}", "", view.meaning, "", *head, *rows, ""])


def _functions() -> str:
    return "\n".join(
        [
            "## Functions",
            "",
            "Of one row, or over a window:",
            "",
            *_listed(functions.plain_functions()),
            "",
            f"Aggregates, each also with {', '.join(f'`{one}`' for one in functions.combinators())} behind its name:",
            "",
            *_listed(functions.aggregates()),
            "",
        ]
    )


def _listed(names: Iterable[str]) -> list[str]:
    return textwrap.wrap(", ".join(f"`{name}`" for name in names), 118, break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(reference())
