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
