"""What an answer means to the job that asked: whether it fails, and whether an empty answer can be believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rankscope.cli._errors import FAILED_IF, OK, OVER_GAP
from rankscope.cli._output import plural, say_aside
from rankscope.up import Body, Json, UnreachableError


class FailIf(StrEnum):
    """When a query fails the job that asks it."""

    ANY = "any"
    NONE = "none"


class Doubt(StrEnum):
    """Which absences make it doubtful that there is no row."""

    ANY = "any"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Told:
    """What an answer says beside its rows, in whichever form it came.

    Attributes:
        total: rows over all pages.
        gaps: how many stated absences there are where rows could be, of any class and of lost rows.
        causes: theirs, by name; none are told beside CSV and Arrow.
    """

    total: int
    gaps: Mapping[Doubt, int]
    causes: Mapping[Doubt, Sequence[str]]

    @classmethod
    def of_json(cls, answer: Json) -> "Told":
        """What a JSON document says."""
        found: Sequence[Mapping[str, Any]] = answer["gaps"]
        by_doubt = {Doubt.ANY: found, Doubt.LOST: [gap for gap in found if gap["class"] == Doubt.LOST]}
        return cls(
            int(answer["total"]),
            {doubt: len(gaps) for doubt, gaps in by_doubt.items()},
            {doubt: sorted({str(gap["cause"]) for gap in gaps}) for doubt, gaps in by_doubt.items()},
        )

    @classmethod
    def of_body(cls, body: Body) -> "Told":
        """What the headers of another form say.

        Raises:
            UnreachableError: they do not say it, so that it is no query service of this version that answered.
        """
        total, gaps, lost = (_counted(body, name) for name in ("total", "gaps", "gaps-lost"))
        return cls(total, {Doubt.ANY: gaps, Doubt.LOST: lost}, {})

    def say_doubt(self, doubt: Doubt) -> None:
        """On stderr, that there are no rows, but absences where there could be some."""
        causes = ", ".join(self.causes.get(doubt, ()))
        gaps = plural(self.gaps[doubt], "gap")
        say_aside(f"no rows, but {gaps} where there could be some" + (f" ({causes})" if causes else ""))

    def is_doubtful(self, doubt: Doubt) -> bool:
        """Whether no row was found, but where some are absent."""
        return not self.total and self.gaps[doubt] > 0

    def status(self, fail_if: FailIf, *, doubt: Doubt) -> int:
        """The exit status, with a remark on stderr where it is FAILED_IF."""
        if self.is_doubtful(doubt):
            return OVER_GAP
        if (self.total > 0) == (fail_if is FailIf.ANY):
            say_aside(f"{plural(self.total, 'row')}: fails as --fail-if {fail_if} asks")
            return FAILED_IF
        return OK


def _counted(body: Body, name: str) -> int:
    value = body.said.get(name, "")
    if not value.isdecimal():
        raise UnreachableError(
            f"the answer does not say its {name} in a header: is it from a rankscope query service, of this version?"
        )
    return int(value)
