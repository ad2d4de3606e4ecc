"""A program that does not end when asked."""

import signal
import sys
import threading

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.write("here\n")
    sys.stdout.flush()
    threading.Event().wait()
