"""Renders the reference of the SQL endpoint, `query_api/VIEWS.md`: `python -m rankscope_query_api.sql.reference > FILE`.

A test compares the committed page with what this gives.
"""

import sys
import textwrap
from collections.abc import Iterable

from rankscope_query_api.sql import functions
from rankscope_query_api.sql.reading import MAX_BYTES, MAX_NESTING, MAX_NODES
from rankscope_query_api.sql.views import VIEWS, View

_HEAD = f"""# SQL: views and functions

Rendered from the contract by `python -m rankscope_query_api.sql.reference`; change it there.

`POST /api/v1/sql` takes `{{"query", "parameters", "run", "limit", "format"}}`: one SELECT of ClickHouse's dialect over
the views below, which show one project's rows (one run's, where `run` is named), as they are stored. `limit` is the
most rows that come back, 1,000 where it is left out, 100,000 at most. `format`, or the `Accept` header, asks for
`json`, `csv` (`text/csv`) or `arrow` (`application/vnd.apache.arrow.stream`).

```sql
SELECT rank, count() AS spans, sum(duration_ns) / 1e6 AS ms
FROM spans
WHERE name = {{name:String}} AND ifNull(step, -1) BETWEEN 100 AND 200
GROUP BY rank ORDER BY ms DESC LIMIT 10
```

- **Values** may be bound: `{{name:Type}}` in the text, `{{"parameters": {{"name": …}}}}` beside it; Type is Int8 to UInt64,
  Float32, Float64, String, Bool, `Nullable` or `Array` of one. An integer that its type cannot hold is refused.
- **One SELECT**, with WITH, joins (also ASOF, SEMI, ANTI, ANY), UNION, GROUP BY, HAVING, windows, LIMIT … BY, lambdas,
  CASE, CAST and `::`. Not there: other tables, table functions, SETTINGS, FORMAT, INTO, FINAL, SAMPLE, PREWHERE, ARRAY
  JOIN (use `arrayJoin`), QUALIFY, recursion. Behind IN stand constants, a parameter or a SELECT.
- **Names** are of letters, digits and `_`. Each column of an answer needs a name of its own.
- **Fast** is what names the run, and `ifNull(step, -1)` for the step: the tables are sorted by these.
- **JSON**: `{{"columns": [{{"name", "type"}}], "items": [{{…}}], "returned", "truncated", …}}`; columns ending in `_ns` are
  strings, other numbers numbers, NaN and infinities strings. CSV and Arrow say `returned` and `truncated` in headers
  `x-rankscope-…`; in CSV nothing between commas is NULL and `""` an empty text.
- **Limits**: {MAX_BYTES:,} bytes, {MAX_NODES:,} parts, {MAX_NESTING} brackets inside one another; in the store the time,
  rows, memory and result of a query (`RANKSCOPE_QUERY_TIMEOUT_S`, `RANKSCOPE_QUERY_MAX_ROWS_READ`,
  `RANKSCOPE_QUERY_MAX_MEMORY_BYTES`, `RANKSCOPE_QUERY_MAX_RESULT_ROWS`, and `RANKSCOPE_QUERY_MAX_RESULT_BYTES`, 256 MiB).
  What runs too long is stopped in the store and answered with 422 `timed_out`.

What is sent to the store is never the text itself, but one that is written anew from what was understood of it.
"""


def reference() -> str:
    """Text of the page."""
    parts = [_HEAD, *(_view(view) for view in VIEWS.values()), _functions()]
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
