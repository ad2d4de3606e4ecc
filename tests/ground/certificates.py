"""Certificates for one test run: an authority, and what it signed for servers on loopback and for clients.

Made with the `openssl` program, which every machine that builds Python has; a test that needs them is skipped without.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, PEM files."""

    cert: Path
    key: Path


class Authority:
    """An authority of its own, which nobody else trusts.

    Args:
        folder: Where its files are made; a subfolder of its name.
        name: Its common name.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl program to make certificates with")
        self._folder = folder / name
        self._folder.mkdir()
        self._own = self._pair(name)
        _openssl("req", "-x509", *_EC, *self._files(self._own), "-days", "2", "-subj", f"/CN={name}")

    @property
    def ca(self) -> Path:
        """Its certificate: what those who trust it are given."""
        return self._own.cert

    def signed(self, name: str, *, hosts: str = "DNS:localhost,IP:127.0.0.1,IP:::1", days: int = 2) -> Pair:
        """A certificate of this authority, for a server at `hosts` or a client; below 0 days it has expired."""
        made, request, names = self._pair(name), self._folder / f"{name}.csr", self._folder / f"{name}.names"
        names.write_text(f"subjectAltName={hosts}\n")
        _openssl("req", *_EC, "-keyout", str(made.key), "-out", str(request), "-subj", f"/CN={name}")
        signing = ("-CA", str(self.ca), "-CAkey", str(self._own.key), "-CAcreateserial", "-days", str(days))
        _openssl("x509", "-req", "-in", str(request), *signing, "-extfile", str(names), "-out", str(made.cert))
        return made

    def _pair(self, name: str) -> Pair:
        return Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")

    def _files(self, pair: Pair) -> tuple[str, ...]:
        return "-keyout", str(pair.key), "-out", str(pair.cert)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
