"""An error is good enough to fix the query from it alone."""

import subprocess
import sys

import pytest

from rankscope import errors, tql
from rankscope.tql.fields import FIELDS


def rendered(text: str) -> str:
    with pytest.raises(tql.TqlError) as caught:
        tql.check(tql.parse(text))
    return caught.value.render(text)


def test_the_caret_stands_under_the_wrong_word_with_the_nearest_right_one() -> None:
    assert rendered("rank == 0 and\n\ttensor.nan_cuont > 0") == "\n".join(
        [
            "there is no field tensor.nan_cuont",
            "  \ttensor.nan_cuont > 0",
            "  \t^^^^^^^^^^^^^^^^",
            "hint: did you mean tensor.nan_count?",
        ]
    )


def test_a_type_error_names_both_sides_and_says_what_to_write() -> None:
    assert rendered("span.duration > 5") == "\n".join(
        [
            "span.duration is a duration, 5 is an integer: they do not compare",
            "  span.duration > 5",
            "                  ^",
            "expected: a duration",
            "hint: write a unit, as in 5ms",
        ]
    )


def test_a_wrong_word_of_a_vocabulary_lists_the_right_ones() -> None:
    assert "expected: weight, grad, activation, activation_grad, update" in rendered('tensor.role == "gradient"')


def test_a_chained_comparison_says_how_to_write_an_interval() -> None:
    assert rendered("0 < rank < 8").endswith("hint: a comparison joins two values; for an interval write x in 1..7")


@pytest.mark.parametrize(
    ("query", "code", "hint"),
    [
        ('tensor.l2 > "a"', "type_mismatch", "write a number, as in 2"),
        ('exists(tensor.l2) and rank == "0"', "type_mismatch", "leave out the quotes: 0"),
        ("exists(tensor.l2) and isnan(rank)", "type_mismatch", "every such value is finite: leave the question out"),
        ("tensor.l2 > 1e999", "out_of_range", "write a value up to 1.79e308"),
        ("exists(tensor.l2) and step == -2", "out_of_range", "write a value within 0 to 9223372036854775807"),
        ("tensor.l2 > 1 | top 0 by tensor.l2", "out_of_range", "write how many, as in 10"),
        ("span.duration > 5parsec", "unknown_unit", "write one of the units, as in 5ms"),
        ("tensor.l2 >", "unexpected_end", "write what to compare with, as in tensor.l2 > 0"),
        ("tensor.l2 > 1 |", "unexpected_end", "name a stage behind the last |, or leave it out"),
        ("(tensor.l2 > 1", "unexpected_end", "close the parenthesis with )"),
        (
            "tensor.l2",
            "unexpected_end",
            "compare it with something, as in tensor.l2 > 0 or agree == true, or ask exists(tensor.l2)",
        ),
        ("", "unexpected_end", "write a condition, as in tensor.nonfinite_count > 0"),
        ("sensor.x > 1", "unknown_scope", "did you mean the scope tensor?"),
        ("sensor.l2 > 1", "unknown_scope", "did you mean tensor.l2?"),
        ("x.y == 1", "unknown_scope", "write a scope before the dot, as in tensor.l2"),
        ('span.id == "0"', "unknown_field", "did you mean span.span_id?"),
        ("gap.foo == 1", "unknown_field", "name one that there is"),
        ('tensor.role == "gra"', "unknown_word", 'did you mean "grad"?'),
        ("tensor.l2 in 5..1", "empty_interval", "write the lesser end first"),
        ('"a', "open_string", 'write " at its end'),
    ],
)
def test_every_error_says_what_to_write(query: str, code: str, hint: str) -> None:
    with pytest.raises(tql.TqlError) as caught:
        tql.check(tql.parse(query))

    assert (caught.value.code, caught.value.hint) == (code, hint)


@pytest.mark.parametrize(
    "query",
    [
        *("tensor.l2 > 1 | first 0", "tensor.shape == 1", "select x", "exists(tensor.name) and event.name == 1"),
        *("(" * 300, 'tensor.name == "\\q"', "5 == 5", "span.name contains 3", "exists(tensor.l2) | order by count"),
    ],
)
def test_no_error_is_without_a_hint(query: str) -> None:
    assert "\nhint: " in rendered(query)


def test_an_error_in_one_line_says_where() -> None:
    with pytest.raises(tql.TqlSyntaxError) as caught:
        tql.parse("tensor.l2 = 3")

    assert str(caught.value) == "= does not fit here (line 1, column 11); write == to compare"


def test_the_errors_hang_under_the_sdks_root() -> None:
    for kind in (tql.TqlSyntaxError, tql.TqlTypeError, tql.TqlUnsupported):
        assert issubclass(kind, errors.RankscopeError)
        assert getattr(errors, kind.__name__) is kind


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_misspelt_by_a_letter_is_found_again(name: str) -> None:
    scope, dot, key = name.rpartition(".")
    misspelt = f"{scope}{dot}{key}x"

    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(tql.parse(f"exists({misspelt}) and exists(tensor.name)"))

    assert caught.value.hint.startswith("did you mean ")
    assert caught.value.column == len("exists(") + 1


def test_lark_is_loaded_by_the_first_parse_and_not_before() -> None:
    program = (
        "import sys; from rankscope import tql; before = 'lark' in sys.modules;"
        "tql.parse('tensor.l2 > 1'); print(before, 'lark' in sys.modules)"
    )

    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    assert shown.split() == ["False", "True"]


def test_a_long_line_is_shown_around_the_caret() -> None:
    message, line, carets, *_ = rendered(" and ".join(["rank == 0"] * 40) + " and tensor.l3 > 1").splitlines()

    assert message == "there is no field tensor.l3"
    assert len(line) <= 165
    assert line[carets.index("^") : carets.rindex("^") + 1] == "tensor.l3"


def test_a_long_value_is_quoted_in_short() -> None:
    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(tql.parse(f'span.status == "{"e" * 8000}"'))

    assert len(caught.value.message) < 320
    assert caught.value.message.endswith(" is no word of span.status")
    assert len(caught.value.render("x" * 8000)) < 1000


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("tensor.l2 > .5", "write a digit before the point, as in 0.5"),
        ("tensor.l2 > 5.", "write a digit behind the point, as in 5.0"),
        ("tensor.l2 > 1_000", "write the digits without _"),
        ("tensor.l2 > 0x10", "write a number in decimal digits"),
        ("span.duration > 5 ms", "write the unit at its number, as in 5ms"),
        ("exists(tensor.l2) | count() every 30 s", "write the unit at its number, as in 5ms"),
        ("rank in 0...7", "write two points, as in 0..7"),
        ("rank in [0..7]", "an interval stands without brackets, as in x in 0..7"),
        ("rank in []", "write at least one item, as in x in [1, 2]"),
        ('tensor.name in ("a", "b")', "a list stands in brackets, as in x in [1, 2]"),
        ('tensor.name in "a"', "write a list, as in x in [1, 2], or an interval, as in x in 1..7"),
        ("tensor.l2 between 1 and 2", "write an interval, as in x in 1..7"),
        ('tensor.name like "a%"', 'match with a pattern, as in x =~ "a.*"'),
        ('tensor.name ~ "a"', 'match with a pattern, as in x =~ "a.*"'),
        ("tensor.name =~ /a/", 'write the pattern in quotes, as in x =~ "a.*"'),
        ("tensor.name == “a”", "write straight quotes, as in \"a\" or 'a'"),
        ('tensor.name not in ["a"]', "write not before the condition, as in not (x in [1, 2])"),
        ('tensor.name !contains "a"', "write not before the condition, as in not (x in [1, 2])"),
        ("tensor.l2 is null", "ask exists(x) or missing(x), isnan(x) or isinf(x)"),
        ("tensor.l2 == null", "ask missing(x) or exists(x)"),
        ("tensor.l2 != NaN", "ask isnan(x)"),
        ("tensor.l2 == inf", "ask isinf(x)"),
        ("tensor.role == grad", 'a text stands in quotes: "grad"'),
        ("tensor.l2 <> 1", "write != for unequal"),
        ("tensor.l2 => 1", "write >= for greater or equal"),
        ("tensor.l2 === 1", "write == to compare"),
        ("tensor.l2 ** 2 > 1", "multiply, as in x * x"),
        (
            "exists(tensor.l2) == true",
            "a condition is true or false by itself: leave the comparison out, or write not before it",
        ),
        ("tensor.l2 > 1 | sort by rank", "write order by"),
        ("tensor.l2 > 1 | group by rank", "write the aggregate first, as in | count() by rank"),
        ("tensor.l2 > 1 | sum by rank", "write what of, as in sum(tensor.l2)"),
        ("tensor.l2 > 1 | select *", "leave select out: every field comes without it"),
        ("tensor.l2 > 1 | select tensor.l2 as x", "leave it out: a column is named as it is written"),
        (
            "tensor.l2 > 1 | count() every 5 steps by rank",
            "write by before every, as in count() by rank every 10 steps",
        ),
        ("tensor.l2 > 1 | first 3", "first and last are one row: write limit 3, behind order by for others"),
        ("tensor.l2 > 1 | where spread > 1", "it is there behind the stage that makes it: | across rank: spread(..)"),
        ("attr == 1", "write a key of it, as in attr.device"),
        ("tensor.L2 > 1", "did you mean tensor.l2?"),
        ("tensor.l2 > 1 | order rank", "write by here"),
        ('tensor.shape == "2x3"', 'write its sizes in brackets: "[2, 3]", or "[]" of a single number'),
    ],
)
def test_what_another_language_has_is_answered_with_what_this_one_has(query: str, hint: str) -> None:
    assert rendered(query).endswith(f"\nhint: {hint}")


@pytest.mark.parametrize(
    ("query", "words", "column"),
    [
        ("tensor.l2 > 1 andrank == 1", "andrank", 15),
        ("tensor.l2 > 1 ortensor.l1 > 2", "ortensor", 15),
        ("rank in1..7", "in1", 6),
        ("tensor.l2 > 1 | count() byrank", "byrank", 25),
        ("tensor.l2 > 1 | count() every10 steps", "every10", 25),
        ("tensor.l2 > 1 | order by rank descending", "descending", 31),
    ],
)
def test_words_that_run_into_one_another_are_refused(query: str, words: str, column: int) -> None:
    with pytest.raises(tql.TqlSyntaxError) as caught:
        tql.parse(query)

    assert caught.value.message == f"{words} does not fit here"
    assert (caught.value.column, caught.value.length) == (column, len(words))


def test_a_shape_is_compared_however_its_sizes_are_spaced() -> None:
    def checked(shape: str) -> tql.Typed:
        return tql.check(tql.parse(f'tensor.shape == "{shape}"'))

    assert checked("[2,3]") == checked(" [ 2 ,3 ] ") == checked("[2, 3]")
