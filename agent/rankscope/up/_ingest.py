"""HTTP ingest as a part of the server: an agent with a folder of spools of its own, which it sends to the gateway.

Of its own, because the agent of this node's ranks comes and goes with them, and only one serves a folder.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from rankscope.up._folder import DataFolder
from rankscope.up._parts import Answers, ChildPart

_OPTIONS = "RANKSCOPE_AGENT_"
"""Begins the variables of options of `rankscope agent`: a person's are for the agent of their ranks."""

ALLOWANCE_S = 10.0
"""How long it may send what it took when it is told to end; the rest waits in its folder for the next start."""


def ingest_part(
    name: str,
    folder: DataFolder,
    *,
    settings: Mapping[str, str],
    listen: str,
    gateway_port: int,
    answers: Answers,
) -> ChildPart:
    """The part.

    Args:
        name: What messages, its log and its folder are called.
        folder: The data folder.
        settings: Those of the parts, with what it is told of keys and certificates.
        listen: `host:port`.
        gateway_port: The gateway on loopback, which asks for no key.
        answers: Whether it is ready.
    """
    own = {
        **settings,
        "RANKSCOPE_HTTP_LISTEN": listen,
        "RANKSCOPE_HTTP_TLS_CERT": settings["RANKSCOPE_TLS_CERT"],
        "RANKSCOPE_HTTP_TLS_KEY": settings["RANKSCOPE_TLS_KEY"],
        "RANKSCOPE_HTTP_TLS_CLIENT_CA": settings["RANKSCOPE_TLS_CLIENT_CA"],
        "RANKSCOPE_TLS_CERT": "",
        "RANKSCOPE_TLS_KEY": "",
        "RANKSCOPE_KEY": "",
        "RANKSCOPE_ENDPOINT": f"127.0.0.1:{gateway_port}",
        "RANKSCOPE_SPOOL": str(spool_of(folder, name)),
        # The server keeps its data here, whatever disk it is; and nothing that records waits for this one.
        "RANKSCOPE_SPOOL_ANY_FS": "1",
    }
    return ChildPart(
        name,
        environment={name: value for name, value in {**os.environ, **own}.items() if not name.startswith(_OPTIONS)},
        folder=folder,
        answers=answers,
        allowance_s=ALLOWANCE_S,
        command="agent",
    )


def spool_of(folder: DataFolder, name: str) -> Path:
    """The folder of the spools of a part."""
    return folder.path / name
