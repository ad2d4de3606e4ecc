"""The Lua scripts that write to the broker, read from `lua/` beside this file."""

import hashlib
from importlib.resources import files

Arg = str | bytes | int
"""A key or an argument of a command."""


class Script:
    """One script: its text, and the digest under which the broker knows it.

    Args:
        name: File name without `.lua`.
    """

    def __init__(self, name: str) -> None:
        self.source = files("rankscope_ingest").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
