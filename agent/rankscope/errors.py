"""Every error the SDK raises on purpose.

    RankscopeError
    ├── ConfigError      what was asked for cannot be: a setting, an argument, a rank
    ├── ExportError      data could not be handed over
    │   ├── Unavailable  nobody answers, for now
    │   └── Rejected     the gateway refused it, for good
    ├── NotCaptured      values of a tensor were asked for and could not be kept; says why
    ├── BreakpointHit    a breakpoint whose action is to raise has fired
    └── TqlError         a query cannot be answered; says where in its text
        ├── TqlSyntaxError, TqlTypeError, TqlUnsupported

A message says what happened, to which value, and what to do now. None of these reaches a training
loop from a recording call: those count the fault and go on (`Run.faults`). BreakpointHit alone does, because
whoever set the breakpoint asked for it. `flush`, `finish` and `wait` raise
ExportErrors where they were asked to wait for more than the spool.
"""

from typing import TYPE_CHECKING

from rankscope._root_error import Deliberate, RankscopeError

if TYPE_CHECKING:
    from rankscope.tql.errors import TqlError, TqlSyntaxError, TqlTypeError, TqlUnsupported

__all__ = [
    "BreakpointHit",
    "ConfigError",
    "ExportError",
    "NotCaptured",
    "RankscopeError",
    "Rejected",
    "TqlError",
    "TqlSyntaxError",
    "TqlTypeError",
    "TqlUnsupported",
    "Unavailable",
]


class ConfigError(RankscopeError):
    """A setting, an argument or the environment asks for something that cannot be."""


class ExportError(RankscopeError):
    """Data could not be handed over to the gateway."""


class Unavailable(ExportError):  # noqa: N818  # a state, said in one word
    """The gateway does not answer; the same data may be accepted later."""


class Rejected(ExportError):  # noqa: N818  # a state, said in one word
    """The gateway refused the data, and will refuse it again."""


class NotCaptured(RankscopeError):  # noqa: N818  # a state, said in one word
    """Values of a tensor were asked for, and could not be kept."""


class BreakpointHit(Deliberate):  # what happened, not a fault
    """A breakpoint has fired whose action is to raise: out of the model's call, of backward, or of the step's end.

    Args:
        message: Which breakpoint, where, and what it saw.
        hit: The `HitEvent` of the probe.
    """

    def __init__(self, message: str, hit: object = None) -> None:
        super().__init__(message)
        self.hit = hit


if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> type[RankscopeError]:
        """The errors of a query, once one is asked for: who trains never loads the language."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from rankscope.tql import errors

        return getattr(errors, name)
