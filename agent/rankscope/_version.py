"""The version of this package, the one in the distribution's metadata."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rankscope")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
