"""The part of the package that needs torch, loaded when it is first named."""


def __getattr__(name: str) -> object:
    """The package's `__getattr__`."""
    if name != "LocalProbe":
        raise AttributeError(f"module 'rankscope.probe' has no attribute {name!r}")
    from rankscope.probe.local import LocalProbe

    return LocalProbe
