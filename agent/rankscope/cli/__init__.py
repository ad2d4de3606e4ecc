"""The command line: one program for starting, reading and checking, for people and for scripts.

Exit status: 0 it worked, 1 it failed, 2 it was called wrongly (TQL that cannot be read too), 3 there is no such
run, step or trace. With `--json` stdout holds exactly one JSON document and errors are one on stderr.

The tiers' own commands take `AsJson` as an option, answer with `say_json`, and raise: `main` renders every
RankscopeError, a ConfigError as a wrong call.
"""

from rankscope.cli._output import say_json
from rankscope.cli._program import main
from rankscope.cli._source import AsJson

__all__ = ["AsJson", "main", "say_json"]
