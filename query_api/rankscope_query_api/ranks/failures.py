"""Which rank failed first: a pure judge. Others fail after it, for the connection to it is gone.

An error that speaks of the connection between ranks is a consequence, whenever it came. Of those that are none, the
first on one clock is the cause; where clocks do not tell which was first, all of them are named.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_query_api.failing import Failure
from rankscope_query_api.ranks.clocks import Moment, order

_OF_THE_CONNECTION = re.compile(
    r"connection (closed|reset|refused)|broken pipe|gloo|nccl|DistBackendError|DistNetworkError|process ?group"
    r"|timed out (waiting|after)|socket",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """Who failed first.

    Attributes:
        first: That; several: it is undecided which of them was.
        after: The others, by rank.
        is_by_words: Whether it is because the others' errors speak of the connection alone; else clocks told it.
    """

    first: Sequence[Failure]
    after: Sequence[Failure]
    is_by_words: bool


def is_of_the_connection(failure: Failure) -> bool:
    """Whether an error is what a rank sees when another one is gone."""
    return bool(_OF_THE_CONNECTION.search(f"{failure.error_type}: {failure.message}"))


def first_failure(failures: Sequence[Failure], moments: Mapping[str, Moment]) -> FirstFailure | None:
    """Who failed first; None: nobody failed.

    Args:
        failures: By rank.
        moments: When each failed, by incarnation.
    """
    if not failures:
        return None
    own = [one for one in failures if not is_of_the_connection(one)] or list(failures)
    first = [one for one in own if not _has_one_before(one, own, moments=moments)]
    after = [one for one in failures if one not in first]
    return FirstFailure(first, after, is_by_words=len(own) == 1 and len(failures) > 1)


def _has_one_before(one: Failure, own: Sequence[Failure], *, moments: Mapping[str, Moment]) -> bool:
    at = moments[one.incarnation]
    return any(order(moments[other.incarnation], at) == "before" for other in own if other is not one)
