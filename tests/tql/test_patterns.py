"""Patterns: what both engines read alike is taken and rewritten, everything else refused where it stands."""

import random
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope import tql
from rankscope.tql import matching
from rankscope.tql.errors import NOWHERE
from rankscope.tql.matching import matcher
from rankscope.tql.patterns import rewritten

LETTERS = "abcé1_\n ."


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{1,}", "*?", "{0}"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, signs).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


atoms = st.sampled_from(
    ["a", "b", "é", ".", "[ab]", "[^a]", r"\d", r"\W", r"[\w.-]", r"\.", r"\s", "[a-c]", r"\x41", ""]
)
patterns = st.recursive(atoms, repeated, max_leaves=8)
texts = st.text(st.sampled_from(LETTERS), max_size=8)


@given(patterns, texts)
@settings(max_examples=300, deadline=None)
def test_a_rewritten_pattern_matches_what_the_written_one_does(pattern: str, text: str) -> None:
    wanted = re.fullmatch(pattern, text, re.ASCII | re.DOTALL) is not None

    rewrote = rewritten(pattern, place=NOWHERE)

    assert (re.fullmatch(rewrote, text, re.DOTALL) is not None) is wanted
    assert matcher(rewrote)(text) is wanted
    assert rewritten(rewrote, place=NOWHERE) == rewrote


@given(st.text(st.sampled_from(r"ab\d[]()|*+?{}.,1^$-:é" + "\n"), max_size=12))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_pattern_that_compiles_or_is_refused(text: str) -> None:
    outcome = rewritten_or_refused(text)

    if isinstance(outcome, tql.TqlTypeError):
        assert outcome.code == "bad_pattern"
    else:
        re.compile(outcome)


def rewritten_or_refused(text: str) -> str | tql.TqlTypeError:
    try:
        return rewritten(text, place=NOWHERE)
    except tql.TqlTypeError as error:
        return error


@pytest.mark.parametrize(
    ("written", "rewrote"),
    [
        (r"\d+", "[0-9]+"),
        (r"\W", "[^0-9A-Z_a-z]"),
        (r"[\s,]", r"[\x09-\x0a\x0c-\x0d \,]"),
        ("(a|b)*c", "(?:a|b)*c"),
        ("a{2,3}?", "a{2,3}"),
        (r"a\.b", r"a\.b"),
        (".*", ".*"),
        ("\x00", r"\x00"),
    ],
)
def test_what_the_engines_read_apart_is_written_out(written: str, rewrote: str) -> None:
    assert rewritten(written, place=NOWHERE) == rewrote


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?i)a", "(?=a)", "(?!a)", "(?<=a)", "(?P<x>a)", "(?>a)", "(?#a)"),
        *(r"(a)\1", r"\b", r"\B", r"\A", r"\Z", r"\z", r"\pL", r"\Qa\E", r"\C", r"\é", r"\_", r"\8", "a\\"),
        *("^a", "a$", "a**", "a*+", "a{2}{3}", "*", "a{2,1}", "a{1001}", "a{,3}", "{", "}", "]"),
        *("[[:alpha:]]", "[]", "[^]", "[a", "[z-a]", "[a-c-e]", r"[\D]", "[a&&[b]]", "(", ")", "(a", "a)"),
    ],
)
def test_what_is_not_common_to_both_engines_is_refused(pattern: str) -> None:
    with pytest.raises(tql.TqlTypeError) as caught:
        rewritten(pattern, place=NOWHERE)

    assert caught.value.code == "bad_pattern"
    assert "write it otherwise" not in caught.value.hint


@pytest.mark.parametrize(
    "pattern",
    [
        "(){1000}(){1000}",
        "|" * 1000,
        "(a|){501}",
        "(a{100}){11}",
        "(a{32}){32}b{9}",
        "((((((((((((((((((a))))))))))))))))))",
        "(((a{40}){40}){40}){40}",
    ],
)
def test_a_pattern_is_small_with_its_repeats(pattern: str) -> None:
    with pytest.raises(tql.TqlTypeError):
        rewritten(pattern, place=NOWHERE)


def test_the_caret_stands_in_the_pattern() -> None:
    text = 'exists(span.name) and\nspan.name =~ "all(x"'

    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(tql.parse(text))

    assert (caught.value.line, caught.value.column, caught.value.length) == (2, 18, 1)
    assert caught.value.render(text).splitlines()[2] == "  " + " " * 17 + "^"


def test_behind_an_escape_the_caret_stands_under_the_string() -> None:
    text = r'span.name =~ "\\d(x"'

    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(tql.parse(text))

    assert (caught.value.column, caught.value.length) == (14, 7)


@pytest.mark.parametrize("pattern", ["(a|aa)*b", "(a*)*b", "(a?){50}a{50}b", ".*.*.*.*.*b", "(a|a)(a|a)(a|a)(a|a)*b"])
def test_no_pattern_takes_more_ways_than_it_has_places(pattern: str) -> None:
    # With `re` each of these needs longer than anybody waits.
    matches = matcher(rewritten(pattern, place=NOWHERE))

    assert not matches("a" * 2000)
    assert matches("a" * 100 + "b")


def test_no_text_takes_more_ways_than_it_has_letters() -> None:
    # With `re` ten of these took four seconds.
    matches = matcher(rewritten(".*a.*b", place=NOWHERE))

    assert not any(matches("a" * 32_768) for _ in range(10))
    assert matches("a" * 32_768 + "b")


def test_what_a_pattern_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_MOST_REMEMBERED", 500)
    chance = random.Random(3)
    matches = matcher(rewritten("(a|b)*a(a|b){60}", place=NOWHERE))
    tracemalloc.start()

    assert matches("".join(chance.choice("ab") for _ in range(600)) + "a" + "b" * 60)

    assert tracemalloc.get_traced_memory()[1] < 2**18
    tracemalloc.stop()


def test_a_brace_that_is_no_repeat_is_called_so() -> None:
    with pytest.raises(tql.TqlTypeError) as caught:
        rewritten("a{,3}", place=NOWHERE)

    assert caught.value.message == "the pattern has a { that is no repeat at its character 2"
