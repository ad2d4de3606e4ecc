"""The store over ClickHouse: the statements, each beside the code that reads its rows.

Every table reference in every statement here filters by project (`tests/query_api/test_statements.py` parses them all).
"""
