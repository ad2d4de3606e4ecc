"""What is captured from a running PyTorch model: spans of its phases and statistics of its tensors.

`Run.watch` calls `attach`. Importing this package imports torch; `rankscope` itself does not.
"""

from rankscope.probe.attach import attach
from rankscope.probe.options import WatchOptions
from rankscope.probe.watch import Watch

__all__ = ["Watch", "WatchOptions", "attach"]
