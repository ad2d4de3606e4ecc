"""The two lines a training says: where its data goes, and at the end what went.

On stderr, from rank 0, below a progress bar if one is drawn, and not at all when told to be quiet.
"""

import sys
from typing import Protocol, cast


class _Bar(Protocol):
    def write(self, text: str, *, file: object) -> None:
        """Write above the bar."""
        ...


def say(text: str) -> None:
    """Write one line for a person on stderr."""
    line = f"rankscope: {text}"
    bar = getattr(sys.modules.get("tqdm"), "tqdm", None)
    try:
        if bar is None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        else:
            cast("_Bar", bar).write(line, file=sys.stderr)
    except (OSError, ValueError, AttributeError):
        return  # stderr is closed or gone: there is nobody to tell
