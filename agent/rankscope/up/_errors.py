"""What can go wrong while starting or running the embedded server.

    UpError
    ├── FolderHeldError      another process owns the data folder
    ├── MissingExtraError    a package that this command needs is not installed
    └── PartFailedError      one part did not start, or ended by itself

Each carries a code word for JSON and, where there is one, a hint: what to do now.
"""

from pathlib import Path

from rankscope.errors import RankscopeError


class UpError(RankscopeError):
    """The embedded server cannot do what was asked.

    Attributes:
        code: one word for programs, the same in every release.
        hint: what to do now, or "".
    """

    code = "failed"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # for tracebacks and notebooks, which show nothing else beside the text


class FolderHeldError(UpError):
    """Another process holds the data folder: chDB allows one process per folder.

    Args:
        folder: the folder.
        pid: the holder, if it has said who it is.
        command: its command line.
        reads: it is a command that reads, and holds the folder longer than one should.
    """

    code = "folder_held"

    def __init__(self, folder: Path, *, pid: int | None, command: str, reads: bool = False) -> None:
        who = f"process {pid} ({command})" if pid else "a process that did not write its id"
        super().__init__(
            f"the data folder {folder} is held by another process: {who}",
            hint="it is still reading; with `rankscope up` running, any number of commands read at once"
            if reads
            else "stop that process, or name another folder with --home or RANKSCOPE_HOME",
        )
        self.pid = pid


class MissingExtraError(UpError):
    """A command needs packages that the base install does not bring."""

    code = "missing_extra"

    def __init__(self, what: str, *, extra: str, missing: str) -> None:
        super().__init__(f"{what} needs the package {missing!r}: pip install 'rankscope[{extra}]'")
        self.extra = extra


class PartFailedError(UpError):
    """One part of the server did not start, or ended although nobody asked it to."""

    code = "part_failed"

    def __init__(self, part: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{part} failed: {reason}", hint=hint)
        self.part = part
