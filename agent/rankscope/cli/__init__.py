"""The command line: one program for starting, reading and checking, for people and for scripts.

Exit status: 0 it worked, 1 it failed, 2 it was called wrongly (TQL that cannot be read too), 3 there is no such
run, step or trace. With `--json` stdout holds exactly one JSON document and errors are one on stderr.
"""

from rankscope.cli._program import main

__all__ = ["main"]
