"""The root of the SDK's exceptions, in a module of its own so that every part can derive from it without a cycle."""


class RankscopeError(Exception):
    """Root of every error the SDK raises on purpose."""


class Deliberate(RankscopeError):  # noqa: N818 - what was asked for is no error
    """Root of what somebody asked to have raised into the training, at a breakpoint: hooks let it through."""
