"""A query is small; what is larger is refused by name, and nothing recurses over it before."""

import pytest

from rankscope import tql


def refusal(text: str) -> tql.TqlError:
    with pytest.raises(tql.TqlSyntaxError) as caught:
        tql.parse(text)
    return caught.value


def test_a_text_may_have_8192_bytes() -> None:
    longest = 'tensor.name == "é' + "x" * (8192 - 19) + '"'
    assert len(longest.encode()) == 8192

    assert tql.parse(longest)
    assert refusal(longest + " ").code == "text_too_long"
    assert refusal(longest + " ").message == "the query is 8193 bytes long, the limit is 8192"


def test_a_list_may_have_64_items() -> None:
    def listing(count: int) -> str:
        return f"tensor.numel in [{', '.join('1' * count)}]"

    assert tql.parse(listing(64))
    assert refusal(listing(65)).message == "the list has 65 items, the limit is 64"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("exists(span.name) | select {}", "the select has 65 items, the limit is 64"),
        ("exists(span.name) | count() by {}", "the by has 65 items, the limit is 64"),
        ("exists(span.name) | order by {}", "the order by has 65 items, the limit is 64"),
        ("coalesce({}) == 1", "the coalesce() has 65 items, the limit is 64"),
    ],
)
def test_whatever_has_items_may_have_64(query: str, message: str) -> None:
    items = [f"attr.x{number}" for number in range(65)]

    assert tql.parse(query.format(", ".join(items[:64])))
    assert refusal(query.format(", ".join(items))).message == message


def test_a_stage_may_have_64_calls() -> None:
    assert refusal("exists(span.name) | " + ", ".join(["count()"] * 65)).code == "list_too_long"


def test_a_query_may_have_16_stages() -> None:
    assert tql.check(tql.parse("exists(span.name)" + " | limit 1" * 16))

    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(tql.parse("exists(span.name)" + " | limit 1" * 17))

    assert caught.value.message == "the query has 17 stages, the limit is 16"


@pytest.mark.parametrize("operator", [">", ">>", "<", "<<", "~", "!>", "!>>"])
def test_a_chain_may_have_8_structural_operators(operator: str) -> None:
    def chain(count: int) -> tql.Query:
        return tql.parse(f" {operator} ".join(["exists(span.name)"] * (count + 1)))

    assert tql.check(chain(8))

    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(chain(9))

    assert caught.value.code == "too_many_relations"
    assert caught.value.message == "the query has 9 structural operators, the limit is 8"


def test_a_query_may_have_8_different_functions_of_a_series() -> None:
    def histories(count: int) -> str:
        return " and ".join(f"robust_z(tensor.l2, {number}) > 1" for number in range(8, 8 + count))

    assert tql.check(tql.parse(f"{histories(8)} and robust_z(tensor.l2, 8) < 9"))

    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(tql.parse(f"{histories(8)} and prev(tensor.l2) < 9 and robust_z(tensor.l2, 8) < 9"))

    assert caught.value.code == "too_many_histories"
    assert caught.value.message == "the query has 9 different functions of a series, the limit is 8"
    assert caught.value.column == len(histories(8)) + len(" and ") + 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tensor.l2 > tensor.l2" + " % tensor.l2" * 13, "13 arithmetic operators inside one another, the limit is 12"),
        (" and ".join(["step * step * step > 1"] * 25), "50 arithmetic operators, the limit is 48"),
    ],
)
def test_a_query_may_have_48_arithmetic_operators_and_12_inside_one_another(text: str, found: str) -> None:
    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(tql.parse(f"{text} and exists(tensor.name)"))

    assert caught.value.code == "too_many_operators"
    assert caught.value.message == f"the query has {found}"


def test_ten_thousand_ors_are_too_long_and_a_thousand_too_many_nodes() -> None:
    assert refusal(" or ".join(["tensor.l2 > 1"] * 10_000)).code == "text_too_long"
    assert refusal(" or ".join(["a.b>1"] * 900)).code == "too_many_nodes"


def test_a_tree_may_have_256_nodes() -> None:
    def chain(count: int) -> str:
        return " or ".join(["tensor.l2 > 1"] * count)

    assert tql.parse(chain(84))
    assert refusal(chain(85)).message == "the query has 257 nodes, the limit is 256"


@pytest.mark.parametrize("opening", ["not ", "-", "1 + "])
def test_a_tree_may_be_32_levels_deep(opening: str) -> None:
    error = refusal(f"{opening * 40}tensor.l2 > 1")

    assert error.code == "too_deep"
    assert error.message == "the query is nested deeper than 32 levels"


def test_thousands_of_parentheses_are_no_levels_and_exhaust_nothing() -> None:
    assert tql.parse("(" * 4000 + "tensor.l2 > 1" + ")" * 4000) == tql.parse("tensor.l2 > 1")


@pytest.mark.parametrize("text", ["not " * 2000 + "tensor.l2 > 1", "tensor.l2 > " + "-" * 8000 + "1"])
def test_thousands_of_levels_exhaust_nothing(text: str) -> None:
    assert refusal(text).code == "too_deep"


def test_half_a_surrogate_pair_is_refused_where_it_stands() -> None:
    error = refusal('tensor.name == "\ud800"')

    assert (error.code, error.column) == ("not_unicode", 17)
    error.render('tensor.name == "\ud800"').encode()


@pytest.mark.parametrize("number", ["1e" + "9" * 8000, "1e-" + "9" * 8000, "1e999999999999999999h", "9" * 8000 + "ms"])
@pytest.mark.parametrize("query", ["tensor.l2 > {}", "span.duration > {}", "span.depth in [{}]", "attr.x == {}"])
def test_a_number_of_any_size_is_taken_or_refused_by_name(query: str, number: str) -> None:
    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(tql.parse(query.format(number)))

    assert caught.value.code in {"out_of_range", "type_mismatch"}


def test_a_number_of_any_length_is_refused_by_its_range() -> None:
    query = tql.parse(f"tensor.nan_count == {'9' * 8000}")

    with pytest.raises(tql.TqlTypeError) as caught:
        tql.check(query)

    assert caught.value.code == "out_of_range"
