"""What one query of an API key may cost, as its file says it and the query service minds it."""

import math
from dataclasses import asdict, dataclass

__all__ = ["AS_THE_SERVICE_ALLOWS", "KeyLimits"]


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one query of a key may cost; a service that allows less is not made to allow more.

    Attributes:
        seconds: It may run so long; None: as long as the service allows, and so with the others.
        rows_read: It may read so many rows of the tables.
        memory_bytes: It may take so much memory in the store.
        result_rows: Its answer may have so many rows.

    Raises:
        ValueError: one is not more than nothing, or no number.
    """

    seconds: float | None = None
    rows_read: int | None = None
    memory_bytes: int | None = None
    result_rows: int | None = None

    def __post_init__(self) -> None:
        """See the class."""
        for name, value in self.given().items():
            kinds = (int, float) if name == "seconds" else (int,)
            if type(value) not in kinds or not math.isfinite(value) or value <= 0:
                raise ValueError(f"the limit {name} of a key is {value!r}, and must be a number above 0")

    def given(self) -> dict[str, float]:
        """Those that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


AS_THE_SERVICE_ALLOWS = KeyLimits()
"""Of a key that sets no limit."""
