"""gRPC, as this package loads it: with the settings that are read once, when it is imported.

Every module here takes it from this one, so that none can import it before the settings are made. An environment
that has them already, or an earlier import of gRPC by somebody else, decides otherwise.

Fork support is off: with it on, each fork of a process with a live channel took up to 5 s (20 forks: 19.9 s against
1.3 s), and DataLoader workers are forks. Log lines below errors are off: each failed TLS handshake is one, on the
trainer's stderr or in the agent's log, about one a second for as long as a setting is wrong. What fails is said by
who calls, once a minute.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc

__all__ = ["grpc"]
