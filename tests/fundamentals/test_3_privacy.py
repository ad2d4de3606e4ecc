"""Privacy: what is kept of payloads, and what never is."""

from rankscope import Run
from tests.fundamentals.conftest import Recorded


def test_nothing_of_a_payload_is_kept_unless_asked_for(run: Run, recorded: Recorded) -> None:
    """`capture` is off: names, times, labels and metrics are kept, no input, output or message."""
    with run.trace("answer", inputs={"question": "?"}) as span:
        span.set_output("!")

    (kept,) = recorded()
    assert (kept.inputs, kept.outputs) == (None, None)


def test_a_preview_is_kept_where_it_is_asked_for(run: Run, recorded: Recorded) -> None:
    """`capture="preview"` keeps bounded JSON of the input and the output, None too."""
    with run.trace("answer", inputs={"question": "?"}, capture="preview") as span:
        span.set_output(None)

    (kept,) = recorded()
    assert kept.inputs == {"question": "?"}
    assert kept.outputs is None


def test_secrets_are_masked_before_anything_is_written(run: Run, recorded: Recorded) -> None:
    """By the name of a field, in any spelling, and by the look of a value."""
    secrets = {"apiKey": "abc", "authorization": "Bearer abcdefgh12345678", "note": "use sk-" + "a1B2" * 6}
    with run.trace("call", attributes=secrets, inputs=secrets, capture="preview"):
        pass

    (kept,) = recorded()
    shown = f"{kept.attributes} {kept.inputs}"
    assert shown.count("[REDACTED]") == 6
    assert not any(secret in shown for secret in ("abc", "a1B2"))


def test_numbers_are_never_masked(run: Run, recorded: Recorded) -> None:
    """`loss_per_token` ends in a word that secrets end in; it is a number, and stays one."""
    with run.trace("step", attributes={"max_new_token": 64}, metrics={"loss_per_token": 0.5}):
        pass

    (kept,) = recorded()
    assert (kept.attributes, kept.metrics) == ({"max_new_token": 64}, {"loss_per_token": 0.5})


def test_a_large_value_is_summarised_not_copied(run: Run, recorded: Recorded) -> None:
    """A preview takes at most 4 KiB, however large the value is."""
    with run.trace("call", inputs={"tokens": list(range(1_000_000))}, capture="preview"):
        pass

    (kept,) = recorded()
    assert 0 < len(str(kept.inputs)) <= 2 * 4096
