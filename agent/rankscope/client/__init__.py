"""Reads what was recorded, in Python: `rankscope.connect()` gives a `Client`, its answers are `Result`s and `Tree`s.

>>> client = rankscope.connect("http://127.0.0.1:8470")
>>> client.query("tensor.nonfinite_count > 0 | first", run="demo-1").rows
[{'run_id': 'demo-1', 'rank': 1, 'step': 14, ...}]

The command line reads through the same functions.
"""

from rankscope.client._asking import Asking
from rankscope.client._client import ARRIVAL_PATIENCE_S, Client, NoServerError, NoTraceError, connect
from rankscope.client._refused import QueryRefusedError, caret
from rankscope.client._result import Result, Row
from rankscope.client._shown import cut, padded, printable, width_of
from rankscope.client._tree import SPANS_A_PAGE, TraceWalk, Tree, window_rows
from rankscope.client._values import MissingPackageError

__all__ = [
    "ARRIVAL_PATIENCE_S",
    "SPANS_A_PAGE",
    "Asking",
    "Client",
    "MissingPackageError",
    "NoServerError",
    "NoTraceError",
    "QueryRefusedError",
    "Result",
    "Row",
    "TraceWalk",
    "Tree",
    "caret",
    "connect",
    "cut",
    "padded",
    "printable",
    "width_of",
    "window_rows",
]
