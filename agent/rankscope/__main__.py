"""`python -m rankscope` is the command line: what the installed `rankscope` script runs."""

import sys

from rankscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
