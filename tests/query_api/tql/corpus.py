"""The corpus as values."""

from pathlib import Path
from typing import Any

import yaml

_CORPUS: dict[str, list[Any]] = yaml.safe_load((Path(__file__).parent / "corpus.yaml").read_text(encoding="utf-8"))

VALID: list[str] = _CORPUS["valid"]
REFUSED: dict[str, list[dict[str, str]]] = {kind: _CORPUS[kind] for kind in ("syntax", "check", "unsupported")}
EVERY: list[str] = [*VALID, *(case["query"] for cases in REFUSED.values() for case in cases)]
"""Every query of the corpus."""
