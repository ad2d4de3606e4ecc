"""`python -m rankscope`: the command line, for where no `rankscope` is on the PATH."""

import sys

from rankscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
