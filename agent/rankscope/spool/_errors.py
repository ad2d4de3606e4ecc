"""What can be wrong with a spool, told so that its reader knows what to do next."""

from rankscope._root_error import RankscopeError


class SpoolError(RankscopeError):
    """A spool cannot be made, opened or held where it was asked for."""


class SpoolHeldError(SpoolError):
    """Another process holds the spool; the message names it."""
