"""HTTP ingest: trace events of another system's clients, taken by the agent process and carried like any batch.

What a client was answered 200 for is on this machine's disk, and reaches the store exactly once, whoever dies
meanwhile. `README.md` beside this file says what is taken, what is refused, and what becomes of it.
"""

from rankscope.front.front import Front
from rankscope.front.options import FrontOptions, host_and_port

__all__ = ["Front", "FrontOptions", "host_and_port"]
