"""The embedded server: every tier on loopback, under one data folder, started and stopped as one thing.

`LocalServer` runs a broker, a gateway, a writer and the query service; `reading` opens the same folder without
them when nothing runs; `Client` speaks to whichever answers.
"""

from rankscope._plaintext import is_loopback_host
from rankscope.up._access import INSECURE, Access, PlainTextKeyError, Remedies, exposure_fault, server_context
from rankscope.up._background import end, running_server, start_detached
from rankscope.up._calling import call, is_usual
from rankscope.up._client import BadUrlError, Body, Client, Json, Parameter, RefusedError, UnreachableError, quoted
from rankscope.up._errors import FolderHeldError, MissingExtraError, PartFailedError, UpError
from rankscope.up._folder import DataFolder, Holder
from rankscope.up._parts import tethered
from rankscope.up._ports import GATEWAY_PORT, HTTP_INGEST_PORT, LOOPBACK, QUERY_PORT
from rankscope.up._public import Public
from rankscope.up._reading import NothingKeptError, reading
from rankscope.up._server import Endpoints, LocalServer, Ports, free_ports, moved
from rankscope.up._services import importing, load_command, load_service, require

__all__ = [
    "GATEWAY_PORT",
    "HTTP_INGEST_PORT",
    "INSECURE",
    "LOOPBACK",
    "QUERY_PORT",
    "Access",
    "BadUrlError",
    "Body",
    "Client",
    "DataFolder",
    "Endpoints",
    "FolderHeldError",
    "Holder",
    "Json",
    "LocalServer",
    "MissingExtraError",
    "NothingKeptError",
    "Parameter",
    "PartFailedError",
    "PlainTextKeyError",
    "Ports",
    "Public",
    "RefusedError",
    "Remedies",
    "UnreachableError",
    "UpError",
    "call",
    "end",
    "exposure_fault",
    "free_ports",
    "importing",
    "is_loopback_host",
    "is_usual",
    "load_command",
    "load_service",
    "moved",
    "quoted",
    "reading",
    "require",
    "running_server",
    "server_context",
    "start_detached",
    "tethered",
]
