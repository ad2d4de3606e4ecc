"""What a rule found in a run: one sentence with its evidence, and what makes it the same finding when found again."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rankscope_query_api.answers import Json, moment
from rankscope_query_api.values import RunKey

Severity = Literal["info", "warning", "error"]
"""info: good to know, no alarm; warning: look at it; error: the run is broken or does not go on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found.

    Attributes:
        rule: Name of the rule.
        version: Of it.
        severity: How much it matters.
        launch: Launch id, 32 hex digits; "": of no launch.
        step: First step of it; None: none.
        rank: Whose; None: of no single rank.
        subject: What it is about, such as a tensor or a collective: the same for the same thing.
        sentence: All that for a reader.
        evidence: What speaks for it.
        thresholds: Those that it was judged by.
        first_ns: When it began, ns since the epoch; 0: not known.
        last_ns: When it was last so; 0: not known.
    """

    rule: str
    version: int
    severity: Severity
    launch: str
    step: int | None
    rank: int | None
    subject: str
    sentence: str
    evidence: Mapping[str, Json] = field(default_factory=dict[str, Json])
    thresholds: Mapping[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    first_ns: int = 0
    last_ns: int = 0

    def as_json(self) -> dict[str, Json]:
        """For an answer, and as it is kept."""
        return {
            "rule": self.rule,
            "version": self.version,
            "severity": self.severity,
            "launch_id": self.launch,
            "step": self.step,
            "rank": self.rank,
            "subject": self.subject,
            "sentence": self.sentence,
            "evidence": self.evidence,
            "thresholds": self.thresholds,
            **moment("first", self.first_ns or None),
            **moment("last", self.last_ns or None),
        }

    def incarnation(self, key: RunKey) -> bytes:
        """The 16 bytes under which it is stored: the same finding of a run is stored once, whoever found it when."""
        parts = (key.project, key.run, self.launch, self.rule, str(self.version), self.subject)
        digest = hashlib.blake2b(b"finding", digest_size=16)
        for part in parts:
            text = part.encode()
            digest.update(len(text).to_bytes(4, "big") + text)
        return digest.digest()
