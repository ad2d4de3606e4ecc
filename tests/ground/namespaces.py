"""Nodes of a cluster on one machine: network namespaces, each with one link to here that can be cut."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

NET = "10.77"
"""Addresses of the links: 10.77.<node>.1 here, 10.77.<node>.2 there."""


class NotAllowedError(Exception):
    """This user, or this kernel, makes no network namespaces; the message says what it answered."""


class NodeSpace:
    """A namespace with one link to the machine's own.

    Args:
        number: 1 to 250; part of its names and addresses.

    Attributes:
        here: The link's address at this end, which a server listens on.

    Raises:
        NotAllowedError: It cannot be made.
    """

    def __init__(self, number: int) -> None:
        self.here, self._there = f"{NET}.{number}.1", f"{NET}.{number}.2"
        self.name = f"rs-{os.getpid()}-{number}"
        self._link = f"rs{os.getpid() % 100_000}n{number}"
        _ip("netns", "add", self.name)
        try:
            self._connect()
        except NotAllowedError:
            self.remove()
            raise

    def _connect(self) -> None:
        peer = f"{self._link}p"
        _ip("link", "add", self._link, "type", "veth", "peer", "name", peer)
        _ip("link", "set", peer, "netns", self.name)
        _ip("addr", "add", f"{self.here}/24", "dev", self._link)
        _ip("link", "set", self._link, "up")
        _ip("-n", self.name, "addr", "add", f"{self._there}/24", "dev", peer)
        _ip("-n", self.name, "link", "set", peer, "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    def command(self, program: Sequence[str | Path]) -> list[str | Path]:
        """The command that runs a program in there; its process id is the program's."""
        return ["ip", "netns", "exec", self.name, *program]

    def cut(self) -> None:
        """Takes the link down: packets vanish, connections stand."""
        _ip("link", "set", self._link, "down")

    def restore(self) -> None:
        """Brings it up again."""
        _ip("link", "set", self._link, "up")

    def limit(self, rate: str) -> None:
        """Lets no more than that through it, either way: 20mbit.

        Raises:
            NotAllowedError: The kernel, or this user, cannot.
        """
        # tbf, as kernels are built without netem more often. The bucket is less than one message of a test.
        shape = ("root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")
        _run("tc", "qdisc", "replace", "dev", self._link, *shape)
        _run("tc", "-n", self.name, "qdisc", "replace", "dev", f"{self._link}p", *shape)

    @property
    def interfaces(self) -> tuple[str, str]:
        """The link's name at this end and at that one."""
        return self._link, f"{self._link}p"

    def remove(self) -> None:
        """Removes the namespace and the link; what runs in there has ended."""
        subprocess.run(["ip", "link", "del", self._link], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, check=False, text=True)
    except FileNotFoundError:
        raise NotAllowedError(f"there is no program `{command[0]}`") from None
    if done.returncode:
        raise NotAllowedError(f"{' '.join(command)}: {done.stderr.strip()}")
