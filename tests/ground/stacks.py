"""A real `rankscope up` in a folder of its own."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.ground.agents import end_agent
from tests.ground.processes import Child, alive, descendants, python

READY_S = 60.0
"""How long a stack may take to get ready on a busy machine; the benchmark asks for its CPU time."""


def clean_environ(**more: str) -> dict[str, str]:
    """This process's environment without what would tell a program about other stacks or launches."""
    foreign = ("RANKSCOPE_", "TORCHELASTIC_", "SLURM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, **more}


class Stack:
    """The stack: broker, gateway, writer and query service.

    Attributes:
        home: Its data folder; what goes into RANKSCOPE_HOME.
        environ: Environment in which programs find it by its discovery file.
    """

    def __init__(self, home: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.environ = clean_environ(RANKSCOPE_HOME=str(home), **(settings or {}))
        self._child = Child(python("rankscope", "up"), name="up", folder=home, environ=self.environ, cwd=home)
        try:
            self._child.await_that(self._is_ready, timeout_s=READY_S, what="get ready")
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process id of `rankscope up`."""
        return self._child.pid

    @property
    def gateway(self) -> str:
        """The gateway's address, such as 127.0.0.1:8471."""
        return str(self._discovery()["gateway"])

    @property
    def query(self) -> str:
        """The query service's address, such as http://127.0.0.1:8470."""
        return str(self._discovery()["query"])

    @property
    def ingest(self) -> str:
        """The HTTP ingest's address, such as http://127.0.0.1:8472."""
        return str(self._discovery()["ingest"])

    @property
    def child(self) -> Child:
        """The process itself."""
        return self._child

    def processes(self) -> set[int]:
        """Its processes that run now."""
        return {pid for pid in {self.pid, *descendants(self.pid)} if alive(pid)}

    def get(self, path: str) -> Any:
        """The JSON answer of `GET /api/v1/...`.

        Raises:
            httpx.HTTPStatusError: The service refused.
        """
        return _json(httpx.get(f"{self.query}/api/v1{path}", timeout=30))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON answer of `POST /api/v1/...`."""
        return _json(httpx.post(f"{self.query}/api/v1{path}", json=body, timeout=30))

    def tql(self, query: str, *, run: str, limit: int = 1000) -> list[dict[str, Any]]:
        """The items a TQL query finds in a run."""
        answer = self.post("/tql", {"query": query, "run": run, "limit": limit})
        return list(answer["items"])

    def stop(self) -> None:
        """Ends it; all its processes are gone when this returns, and the agent of trainings in its folder."""
        self._child.stop()
        end_agent(self.home / "spool")

    def _discovery(self) -> dict[str, Any]:
        return dict(json.loads((self.home / "up.json").read_text()))

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.query}/readyz", timeout=5).status_code == 200
        except (FileNotFoundError, ValueError, httpx.TransportError):
            return False


def _json(answer: httpx.Response) -> Any:
    if answer.is_error:
        raise httpx.HTTPStatusError(answer.text, request=answer.request, response=answer)
    return answer.json()
