"""Who failed first: an error of the connection is a consequence, and clocks order the others as far as they can."""

from dataclasses import replace

import pytest

from rankscope_query_api.failing import Failure
from rankscope_query_api.ranks.clocks import Correction
from rankscope_query_api.ranks.failures import FirstFailure, first_failure, is_of_the_connection
from rankscope_query_api.rules.failed import findings_of
from tests.query_api.batches import START

LOST = ("RuntimeError", "[../gloo/transport/tcp/pair.cc:525] Connection closed by peer [127.0.0.1]:1234")


def failure(rank: int, at: int, error: tuple[str, str] = ("ValueError", "the batch has no labels")) -> Failure:
    """How a rank failed."""
    return Failure(rank, f"{rank:032x}", f"node-{rank}", START + at, *error, step=12)


def judged(*failures: Failure) -> FirstFailure:
    """The judgement where no clock was measured."""
    none = Correction(())
    found = first_failure(failures, {one.incarnation: none.moment(one.incarnation, one.failed_ns) for one in failures})
    assert found is not None
    return found


def test_who_did_not_lose_its_connection_failed_first_whatever_the_clocks_say() -> None:
    found = judged(failure(0, 5, LOST), failure(1, 9, LOST), failure(3, 700))
    [finding] = findings_of(found, "l")

    assert ([one.rank for one in found.first], [one.rank for one in found.after]) == ([3], [0, 1])
    assert found.is_by_words
    assert finding.sentence == (
        "rank 3 failed first, with ValueError at step 12: the batch has no labels; ranks 0, 1 failed after it"
    )
    assert (finding.rank, finding.step, finding.severity) == (3, 12, "error")


def test_of_two_own_errors_under_clocks_that_nobody_measured_the_first_is_not_known() -> None:
    found = judged(failure(0, 5), failure(1, 9), failure(2, 1, LOST))
    [finding] = findings_of(found, "l")

    assert ([one.rank for one in found.first], [one.rank for one in found.after]) == ([0, 1], [2])
    assert "which was first is not known" in finding.sentence
    assert finding.rank is None


def test_one_clock_orders_its_own_processes() -> None:
    one = Correction(())
    first, second = failure(0, 5), failure(1, 9)
    moments = {f.incarnation: replace(one.moment("x", f.failed_ns), clock="node") for f in (first, second)}

    found = first_failure([first, second], moments)

    assert found is not None
    assert [each.rank for each in found.first] == [0]


def test_nobody_failed() -> None:
    assert first_failure([], {}) is None
    assert findings_of(None, "l") == []


@pytest.mark.parametrize(("text", "is_so"), [("NCCL error", True), ("timed out waiting", True), ("KeyError", False)])
def test_an_error_of_the_connection_is_told_by_its_words(text: str, is_so: bool) -> None:
    assert is_of_the_connection(failure(0, 1, ("RuntimeError", text))) is is_so
