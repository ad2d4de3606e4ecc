"""Traces and tensor statistics of a multi-rank training, in one tree and one query."""

from typing import TYPE_CHECKING

from rankscope import errors, testing
from rankscope._connect import connect
from rankscope._current import current_run, finish, watch
from rankscope._init import init
from rankscope._run import Run
from rankscope._span import Span, Trace
from rankscope._step import Step
from rankscope._version import __version__
from rankscope._waiting import wait

if TYPE_CHECKING:
    from rankscope import tql
else:
    from rankscope._late import __getattr__  # noqa: F401 -- Python asks it for `tql`

__all__ = [
    "Run",
    "Span",
    "Step",
    "Trace",
    "__version__",
    "connect",
    "current_run",
    "errors",
    "finish",
    "init",
    "testing",
    "tql",
    "wait",
    "watch",
]

for _public in (Run, Span, Step, Trace, connect, current_run, finish, init, wait, watch):
    _public.__module__ = "rankscope"
