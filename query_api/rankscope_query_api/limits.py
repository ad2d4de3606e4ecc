"""What one query may cost, and who says so: the settings of the service, and below them the limits of a key."""

from dataclasses import dataclass, replace

from rankscope_proto.key_limits import AS_THE_SERVICE_ALLOWS, KeyLimits
from rankscope_query_api.settings import PREFIX, Settings


@dataclass(frozen=True, slots=True)
class Asker:
    """Whose query it is.

    Attributes:
        key_id: The public half of the key; "": no key is asked for, or the service asks itself.
        limits: What the key says of the cost of one query.
    """

    key_id: str = ""
    limits: KeyLimits = AS_THE_SERVICE_ALLOWS

    def reading(self) -> "Asker":
        """The same for what the service asks in order to answer: its lists have limits of their own to their rows."""
        return replace(self, limits=replace(self.limits, result_rows=None))


THE_SERVICE = Asker()


@dataclass(frozen=True, slots=True)
class Limit:
    """One bound to the cost of a query.

    Attributes:
        value: Seconds, rows or bytes.
        setting: Of the service, which is the most that a key may have.
        option: With which `rankscope keys create` sets it; "": no key can.
        key_id: The key that set it; "": the service did.
    """

    value: float
    setting: str
    option: str = ""
    key_id: str = ""

    def tightened(self, value: float | None, key_id: str) -> "Limit":
        """As a key has it that says so much."""
        return self if value is None or value >= self.value else replace(self, value=value, key_id=key_id)

    @property
    def whose(self) -> str:
        """Who set it, and by what name."""
        return f"{self.option} of the key {self.key_id}" if self.key_id else f"{self.setting} of this service"

    @property
    def raised_by(self) -> str:
        """How a query that needs more is allowed more."""
        if self.key_id:
            return f"make a key with a greater {self.option}"
        return f"raise {self.setting}"


@dataclass(frozen=True, slots=True)
class Limits:
    """All bounds to the cost of a query; see `Settings`."""

    seconds: Limit
    rows_read: Limit
    memory_bytes: Limit
    result_rows: Limit
    result_bytes: Limit

    @property
    def values(self) -> tuple[float, ...]:
        """What they come to, whoever set them."""
        bounds = (self.seconds, self.rows_read, self.memory_bytes, self.result_rows, self.result_bytes)
        return tuple(bound.value for bound in bounds)

    @classmethod
    def of(cls, settings: Settings, asker: Asker) -> "Limits":
        """Those of the service, each as the asker's key tightens it."""
        least = asker.limits

        def bound(setting: str, option: str, *, value: float | None) -> Limit:
            ceiling = Limit(getattr(settings, setting), PREFIX + setting.upper(), option)
            return ceiling.tightened(value, asker.key_id)

        return cls(
            seconds=bound("query_timeout_s", "--max-seconds", value=least.seconds),
            rows_read=bound("query_max_rows_read", "--max-rows-read", value=least.rows_read),
            memory_bytes=bound("query_max_memory_bytes", "--max-memory", value=least.memory_bytes),
            result_rows=bound("query_max_result_rows", "--max-result-rows", value=least.result_rows),
            result_bytes=bound("query_max_result_bytes", "", value=None),
        )
