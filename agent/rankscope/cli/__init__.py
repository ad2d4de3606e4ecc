"""The command line: one program for starting, reading and checking, for people and for scripts.

Exit status: 0 it worked, 1 it failed, 2 it was called wrongly (a query that cannot be read too), 3 there is no such
run, step or trace, 4 the rows of `query --fail-if`, a rule of `check` or a verdict of `hang` or `doctor` say so, 5
nothing was found, but over a gap; 130 after Ctrl-C. README.md has the table. With `--json` stdout holds exactly one
JSON document (`tail`: one a row) and errors are one on stderr.

The tiers' own commands take `AsJson` as an option, answer with `say_json`, and raise: `main` renders every
RankscopeError, a ConfigError as a wrong call.
"""

from rankscope.cli._output import say_json
from rankscope.cli._program import main
from rankscope.cli._source import AsJson

__all__ = ["AsJson", "main", "say_json"]
