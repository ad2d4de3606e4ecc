"""TQL, the query language over spans and tensor statistics: from text to typed tree.

>>> from rankscope import tql
>>> tql.format(tql.parse("tensor.nan_count>0 && rank in [0,1]"))
'tensor.nan_count > 0 and rank in [0, 1]'
"""

from rankscope.tql.check import check
from rankscope.tql.errors import Place, TqlError, TqlSyntaxError, TqlTypeError, TqlUnsupported
from rankscope.tql.formatting import format_query as format  # noqa: A004 -- always read as tql.format
from rankscope.tql.nodes import Query
from rankscope.tql.parse import parse
from rankscope.tql.typed import Typed

__all__ = [
    "Place",
    "Query",
    "TqlError",
    "TqlSyntaxError",
    "TqlTypeError",
    "TqlUnsupported",
    "Typed",
    "check",
    "format",
    "parse",
]
