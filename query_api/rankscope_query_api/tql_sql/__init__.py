"""TQL to ClickHouse SQL: checked trees in, statements with bound parameters out. Touches no store itself."""

from rankscope_query_api.tql_sql.compile import DEFAULT_PAGE, Compiled, compile_query

__all__ = ["DEFAULT_PAGE", "Compiled", "compile_query"]
