"""A file that must not be read and a port that must not be dialled."""

import socket
import threading
from pathlib import Path

TOKEN = "canary-4f1d9c"
"""What would be seen if the file were read."""


class Canary:
    """Both, until it is closed.

    Args:
        folder: Where the file is made.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "canary.txt"
        self.path.write_text(f"{TOKEN}\n")
        self.written = folder / "canary.txt.out"
        self.dialled = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._count)
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _count(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.close()
            self.dialled += 1
