"""API keys: who may send, read or delete, and in which projects.

Gateway and query service read one file, which `rankscope keys` writes; it holds SHA-256 digests, never a key. A key's
secret half is 32 random bytes, so a plain digest cannot be guessed from, and a slow one would only slow each request.
The file is looked at on every question and read again when it changed, so a revoked key ends at once, without a
restart. A change that cannot be read keeps the last good keys: an editor's mistake must not lock a cluster out, nor
open it. A service whose first reading fails does not start.
"""

import fcntl
import hmac
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

from rankscope_proto.key_limits import AS_THE_SERVICE_ALLOWS, KeyLimits

__all__ = [
    "EVERY_PROJECT",
    "KeyFile",
    "KeyFileError",
    "KeyRing",
    "Principal",
    "Scope",
    "StoredKey",
    "bearer",
    "masked",
]

logger = logging.getLogger(__name__)

EVERY_PROJECT: Final = "*"
"""Among a key's projects: it is bound to none."""
_VERSION: Final = 1
_KEY: Final = re.compile(r"rsk_([0-9a-f]{8})_[A-Za-z0-9_-]{43}", re.ASCII)
_NO_DIGEST: Final = sha256(b"").hexdigest()

Clock: TypeAlias = Callable[[], int]
"""Now, in ns since the epoch."""


class KeyFileError(Exception):
    """The key file cannot be read or changed; the text says why and what to do."""


class Scope(StrEnum):
    """What a key may do."""

    INGEST = "ingest"
    """Send batches."""
    READ = "read"
    """Ask the query service."""
    CONTROL = "control"
    """Change what running ranks capture."""
    ADMIN = "admin"
    """Everything the others may, and delete runs."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a valid key stands for.

    Attributes:
        key_id: 8 hex digits: the public half of the key, for logs.
        scopes: What it may do.
        projects: Where; EVERY_PROJECT among them: everywhere.
        limits: What one of its queries may cost.
    """

    key_id: str
    scopes: frozenset[Scope]
    projects: frozenset[str]
    limits: KeyLimits = AS_THE_SERVICE_ALLOWS

    def may(self, scope: Scope, project: str | None = None) -> bool:
        """Whether the key has the scope, and that in the project where one is named."""
        has_scope = scope in self.scopes or Scope.ADMIN in self.scopes
        return has_scope and (project is None or self.sees(project))

    def sees(self, project: str) -> bool:
        """Whether the project is one of the key's."""
        return project in self.projects or EVERY_PROJECT in self.projects

    @property
    def only_project(self) -> str | None:
        """The one project it is bound to; None where there are several or it is bound to none."""
        project = next(iter(self.projects)) if len(self.projects) == 1 else EVERY_PROJECT
        return None if project == EVERY_PROJECT else project


@dataclass(frozen=True, slots=True)
class StoredKey:
    """One key as the file holds it, without its secret half.

    Attributes:
        key_id: 8 hex digits.
        name: What its maker called it; may be empty.
        digest: SHA-256 of the whole key, hex.
        scopes: What it may do; never empty.
        projects: Where; never empty.
        created_ns: Since the epoch.
        expires_ns: Since the epoch; from then on it is no key. None: it does not expire.
        revoked_ns: Since the epoch. None: it is not revoked.
        limits: What one of its queries may cost.
    """

    key_id: str
    name: str
    digest: str = field(repr=False)
    scopes: frozenset[Scope]
    projects: frozenset[str]
    created_ns: int
    expires_ns: int | None = None
    revoked_ns: int | None = None
    limits: KeyLimits = AS_THE_SERVICE_ALLOWS

    def is_valid(self, now_ns: int) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_ns is None and (self.expires_ns is None or now_ns < self.expires_ns)


def bearer(authorization: str | None) -> str | None:
    """The key in an `Authorization: Bearer <key>` value; None where there is none.

    Args:
        authorization: The header's or metadata's value; None where it was not sent.
    """
    scheme, _, key = (authorization or "").strip().partition(" ")
    return (key.strip() or None) if scheme.lower() == "bearer" else None


def masked(key: str | None) -> str:
    """The key as reprs and messages may show it: its public half."""
    if not key:
        return "none"
    match = _KEY.fullmatch(key)
    return f"rsk_{match[1]}_***" if match else "***"


class KeyRing:
    """The keys of a file, as a service asks them. Threads may share it."""

    def __init__(self, path: Path, *, clock: Clock = time.time_ns) -> None:
        """Read the file.

        Raises:
            KeyFileError: it is absent, cannot be read or parsed, or others may write it.
        """
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._keys, self._mark = _read(path)
        self._failed_mark: object = None

    def principal(self, key: str | None) -> Principal | None:
        """Whom the key stands for; None where it is absent, unknown, wrong, expired or revoked."""
        match = _KEY.fullmatch(key or "")
        stored = self._current().get(match[1]) if match else None
        digest = sha256((key or "").encode("utf-8", "surrogateescape")).hexdigest()
        is_same = hmac.compare_digest(digest, stored.digest if stored else _NO_DIGEST)
        if stored is None or not is_same or not stored.is_valid(self._clock()):
            return None
        return Principal(stored.key_id, stored.scopes, stored.projects, stored.limits)

    def _current(self) -> Mapping[str, StoredKey]:
        """The file's keys, read again where it changed since."""
        mark = _mark_of(self._path)
        if mark not in (self._mark, self._failed_mark):
            with self._lock:
                self._reload(mark)
        return self._keys

    def _reload(self, mark: object) -> None:
        try:
            self._keys, self._mark = _read(self._path)
            self._failed_mark = None
        except KeyFileError as error:
            # Once per state of the file: a service asks at every request.
            if mark != self._failed_mark:
                logger.error("the last good keys stay in use: %s", error, extra={"key_file": str(self._path)})
            self._failed_mark = mark


class KeyFile:
    """The file, as `rankscope keys` changes it: 0600, replaced whole, one writer at a time."""

    def __init__(self, path: Path, *, clock: Clock = time.time_ns) -> None:
        """Name the file; nothing is read or written yet."""
        self._path = path
        self._clock = clock

    def create(
        self,
        projects: Iterable[str],
        scopes: Iterable[Scope],
        *,
        name: str = "",
        lifetime_ns: int | None = None,
        limits: KeyLimits = AS_THE_SERVICE_ALLOWS,
    ) -> tuple[str, StoredKey]:
        """Add a key; the file and its folder are made where they are absent.

        Args:
            projects: Where it may be used; EVERY_PROJECT for everywhere.
            scopes: What it may do.
            name: For the list.
            lifetime_ns: From now until it expires; None: never.
            limits: What one of its queries may cost.

        Returns:
            The key itself, which is written nowhere, and what is stored of it.

        Raises:
            ValueError: no project or no scope is named, or one is blank.
            KeyFileError: the file cannot be read or written.
        """
        kept_projects, kept_scopes = frozenset(projects), frozenset(scopes)
        if not kept_scopes or not kept_projects or not all(project.strip() for project in kept_projects):
            raise ValueError("a key needs a project (or *) and a scope")
        with self._changing() as keys:
            now = self._clock()
            key_id = next(fresh for fresh in iter(lambda: secrets.token_hex(4), "") if fresh not in keys)
            key = f"rsk_{key_id}_{secrets.token_urlsafe(32)}"
            expires_ns = None if lifetime_ns is None else now + lifetime_ns
            digest = sha256(key.encode()).hexdigest()
            stored = StoredKey(key_id, name, digest, kept_scopes, kept_projects, now, expires_ns, limits=limits)
            keys[key_id] = stored
        return key, keys[key_id]

    def revoke(self, key_id: str) -> StoredKey | None:
        """End a key; None where there is none of that id. A second time changes nothing.

        Raises:
            KeyFileError: the file cannot be read or written.
        """
        with self._changing() as keys:
            stored = keys.get(key_id)
            if stored is not None and stored.revoked_ns is None:
                keys[key_id] = replace(stored, revoked_ns=self._clock())
        return keys.get(key_id)

    def keys(self) -> list[StoredKey]:
        """Every key, the oldest first; none where there is no file.

        Raises:
            KeyFileError: the file cannot be read.
        """
        keys = _read(self._path)[0] if self._path.exists() else {}
        return sorted(keys.values(), key=lambda stored: (stored.created_ns, stored.key_id))

    @contextmanager
    def _changing(self) -> Generator[dict[str, StoredKey]]:
        """The keys to change; they are written where the block ends without an error."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(
                self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise KeyFileError(f"the key file {self._path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = _read(self._path)[0] if self._path.exists() else {}
            yield keys
            _write(self._path, keys.values())
        finally:
            os.close(lock)


def _mark_of(path: Path) -> object:
    """What tells one state of the file from the next; None where it is absent."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _mark(found)


def _mark(found: os.stat_result) -> object:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[dict[str, StoredKey], object]:
    """The file's keys by their id, and the mark of the state that was read."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = file.read()
    except OSError as error:
        remedy = "make it by `rankscope keys create --project NAME`"
        raise KeyFileError(f"the key file {path} cannot be read: {error.strerror}; {remedy}") from error
    if found.st_mode & 0o022:
        raise KeyFileError(f"the key file {path} can be written by other users; run `chmod go-w {path}`")
    try:
        return _parsed(json.loads(data)), _mark(found)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise KeyFileError(f"the key file {path} is damaged ({error}); restore it or make a new one") from error


def _parsed(document: Any) -> dict[str, StoredKey]:
    if document["version"] != _VERSION:
        raise ValueError(f"its version is {document['version']!r}, and this release reads {_VERSION}")
    keys = [_stored(entry) for entry in document["keys"]]
    return {stored.key_id: stored for stored in keys}


def _stored(entry: Any) -> StoredKey:
    return StoredKey(
        key_id=str(entry["id"]),
        name=str(entry["name"]),
        digest=_digest(entry["sha256"]),
        scopes=frozenset(Scope(scope) for scope in entry["scopes"]),
        projects=frozenset(str(project) for project in entry["projects"]),
        created_ns=int(entry["created_ns"]),
        expires_ns=_optional(entry["expires_ns"]),
        revoked_ns=_optional(entry["revoked_ns"]),
        limits=KeyLimits(**entry.get("limits", {})),  # a limit that this release does not know is not passed over
    )


def _digest(text: str) -> str:
    if len(bytes.fromhex(text)) != sha256().digest_size:
        raise ValueError("a digest is not 32 bytes long")
    return text.lower()


def _optional(number: int | None) -> int | None:
    return None if number is None else int(number)


def _write(path: Path, keys: Iterable[StoredKey]) -> None:
    """Replace the file whole, so that a reader sees the one state or the other; a link stays one."""
    document = {"version": _VERSION, "keys": [_entry(stored) for stored in keys]}
    target = path.resolve()
    fresh = target.with_name(f"{target.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            _keep_owner(file.fileno(), target)
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
    except OSError as error:
        raise KeyFileError(f"the key file {path} cannot be written: {error.strerror}") from error


def _keep_owner(descriptor: int, target: Path) -> None:
    """Who could read the old file can read the new one: root may make keys for a service that runs as another user."""
    with suppress(OSError):
        old = target.stat()
        os.fchmod(descriptor, (old.st_mode & 0o644) | 0o600)
        os.fchown(descriptor, old.st_uid, old.st_gid)


def _entry(stored: StoredKey) -> dict[str, object]:
    return {
        "id": stored.key_id,
        "name": stored.name,
        "sha256": stored.digest,
        "scopes": sorted(stored.scopes),
        "projects": sorted(stored.projects),
        "created_ns": stored.created_ns,
        "expires_ns": stored.expires_ns,
        "revoked_ns": stored.revoked_ns,
        "limits": stored.limits.given(),
    }
