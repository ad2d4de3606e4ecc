"""How often the node is sampled, as a person says it: `5s`, `off`."""

import re

from rankscope.errors import ConfigError

EVERY_S = 5.0
"""Where an agent runs as a service and nothing is said."""

LEAST_S, MOST_S = 1.0, 3600.0
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_between(text: str) -> float | None:
    """Seconds between two samples; None: there are none.

    Args:
        text: A duration of 1 s to 1 h, or `off`.

    Raises:
        ConfigError: It is neither.
    """
    if text == "off":
        return None
    found = _DURATION.fullmatch(text.strip())
    every_s = float(found[1]) * _UNIT_S[found[2]] if found else 0.0
    if not LEAST_S <= every_s <= MOST_S:
        raise ConfigError(
            f"--sample (RANKSCOPE_SAMPLE) is {text!r}: it is off, or a duration from 1s to 1h, such as 5s"
        )
    return every_s
