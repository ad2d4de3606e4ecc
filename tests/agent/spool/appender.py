"""A process that appends batches until it is killed: `python -m tests.agent.spool.appender ROOT SIZE`.

Once a batch is in the spool, its seq goes to the standard output: what was said there must be found again.
"""

import sys
from pathlib import Path

from tests.agent.spool.sources import Source, own, writer


def main(root: str, size: str) -> None:
    """Appends for ever."""
    source = Source(who=own())
    spool = writer(Path(root), who=source.who)
    while True:
        batch = source.seal(int(size))
        if not spool.append(batch):
            sys.exit("the spool took no more")
        sys.stdout.write(f"{batch.seq} {batch.digest.hex()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
