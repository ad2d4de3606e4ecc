"""TQL to ClickHouse SQL: typed trees in, statements with bound parameters out. Touches no store itself."""

from rankscope_query_api.tql_sql.statement import DEFAULT_PAGE, Compiled, compile_query

__all__ = ["DEFAULT_PAGE", "Compiled", "compile_query"]
