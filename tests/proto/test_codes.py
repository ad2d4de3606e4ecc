"""The codes of the vocabularies: stored rows hold them, so they never move."""

import pytest

from rankscope_proto import names

PINNED: dict[type[names.Code], str] = {
    names.SpanKind: (
        "rollout env_step model tool retrieval reward evaluator dataset preprocessing postprocessing"
        " checkpoint artifact system custom"
    ),
    names.SpanStatus: "ok error interrupted cancelled",
    names.Phase: "input forward backward optimizer other",
    names.Role: "weight grad activation activation_grad update optimizer_state buffer grad_increment",
    names.ProcessRole: "trainer worker actor server client launcher agent",
    names.RunStatus: "running finished failed interrupted",
    names.Severity: "debug info warning error",
    names.Capture: "off preview",
    names.RedactionState: "nothing_to_redact redacted",
    names.GapClass: "lost not_captured",
}


@pytest.mark.parametrize("vocabulary", PINNED, ids=lambda vocabulary: vocabulary.__name__)
def test_a_vocabulary_begins_with_the_words_it_always_had(vocabulary: type[names.Code]) -> None:
    words = PINNED[vocabulary].split()

    assert [member.value for member in vocabulary][: len(words)] == words
    assert [member.code for member in vocabulary] == list(range(1, len(vocabulary) + 1))
    assert len(vocabulary) == len(words), "a word was appended: pin it here"


def test_every_vocabulary_is_pinned() -> None:
    assert set(names.Code.__subclasses__()) == set(PINNED)


def test_a_code_of_a_newer_writer_reads_as_its_number() -> None:
    assert names.SpanStatus.of(2) == "error"
    assert names.SpanStatus.of(0) == ""
    assert names.SpanStatus.of(200) == "200"


@pytest.mark.parametrize("bits", [names.SPAN_FLAGS, names.TENSOR_FLAGS, names.COLLECTIVE_FLAGS])
def test_flags_are_single_bits_each_its_own(bits: dict[str, int]) -> None:
    assert list(bits.values()) == [1 << place for place in range(len(bits))]


def test_the_bits_of_flags_are_pinned() -> None:
    assert list(names.SPAN_FLAGS) == ["interrupted", "truncated", "recompute", "in_step_trace"]
    assert list(names.TENSOR_FLAGS) == ["scaled", "unscaled", "local", "reduced", "recompute", "sampled", "skipped"]
    assert list(names.COLLECTIVE_FLAGS) == ["enqueued", "async", "p2p", "interrupted"]
