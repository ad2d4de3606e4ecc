"""Writes everything that is rendered from the declaration: `python -m rankscope_proto.render [--check]`."""

import sys
from pathlib import Path

from rankscope_proto import render_proto, render_reference

_PACKAGE = Path(__file__).parent


def rendered() -> dict[Path, str]:
    """Path and text of every rendered file."""
    return {
        _PACKAGE / "v1" / "batch.proto": render_proto.batch_proto(),
        _PACKAGE / "storage" / "landing.txt": render_proto.landing_proto(),
        _PACKAGE.parent / "reference.md": render_reference.reference(),
    }


def main(arguments: list[str]) -> int:
    """Writes the files, or with `--check` names those that differ and returns 1."""
    stale = [path for path, text in rendered().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            sys.stdout.write(f"{path.name} differs from columns.py; run `make proto`\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(rendered()[path])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
