"""A test run that has one child and prints its process id."""

import sys
import threading
from pathlib import Path

from tests.ground.processes import Child

if __name__ == "__main__":
    child = Child(
        [sys.executable, "-c", "import threading; threading.Event().wait()"], name="c", folder=Path(sys.argv[1])
    )
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    threading.Event().wait()
