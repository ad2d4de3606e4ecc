"""The SQL of queries, to be read. `RANKSCOPE_WRITE_SNAPSHOTS=1` writes them anew."""

import json
import os
from pathlib import Path

import pytest

from rankscope import tql
from rankscope_query_api.tql_sql import compile_query
from rankscope_query_api.tql_sql.layout import laid_out

FOLDER = Path(__file__).parent / "snapshots"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.tql")))
def test_a_query_has_the_sql_of_its_snapshot(name: str) -> None:
    text = (FOLDER / f"{name}.tql").read_text(encoding="utf-8")

    compiled = compile_query(tql.check(tql.parse(text)), project="default", run="night")

    values = json.dumps(compiled.parameters, ensure_ascii=False)
    shown = "\n".join([laid_out(compiled.sql), "", f"-- {values}", "", laid_out(compiled.count_sql), ""])
    kept = FOLDER / f"{name}.sql"
    if os.environ.get("RANKSCOPE_WRITE_SNAPSHOTS"):
        kept.write_text(shown, encoding="utf-8")
    assert shown == kept.read_text(encoding="utf-8")
