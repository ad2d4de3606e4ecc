"""Random syntax trees: everything the grammar can say, whether or not it can be checked."""

from hypothesis import strategies as st

from rankscope.tql import nodes
from rankscope.tql.words import UNITS

KEYWORDS = {
    *("and", "or", "not", "in", "contains", "exists", "missing", "isnan", "isinf", "isfinite", "true", "false"),
    *("where", "select", "by", "every", "across", "order", "asc", "desc", "top", "first", "last", "limit", "without"),
    *("step", "steps"),
}

words = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True).filter(lambda word: word not in KEYWORDS)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.one_of(words, st.sampled_from(["min", "step", "first", "and"]), texts)
fields = st.one_of(st.builds(nodes.FieldRef, st.just(""), words), st.builds(nodes.FieldRef, words, keys))
digits = st.from_regex(r"(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
numbers = st.builds(nodes.Number, digits, st.sampled_from(["", *UNITS]))
atoms = st.one_of(fields, numbers, st.builds(nodes.Text, texts), st.builds(nodes.Boolean, st.booleans()))


def _values_of(inner: st.SearchStrategy[nodes.Value]) -> st.SearchStrategy[nodes.Value]:
    return st.one_of(
        st.builds(nodes.Negate, inner),
        st.builds(nodes.Arithmetic, st.sampled_from("+-*/%"), inner, inner),
        st.builds(nodes.Call, words, st.lists(inner, max_size=3).map(tuple)),
    )


values = st.recursive(atoms, _values_of, max_leaves=5)
several = st.lists(values, min_size=1, max_size=3).map(tuple)
comparisons = st.one_of(
    st.builds(nodes.Comparison, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), values, values),
    st.builds(nodes.Match, st.sampled_from(["=~", "!~"]), values, st.builds(nodes.Text, texts)),
    st.builds(nodes.Contains, values, values),
    st.builds(nodes.Membership, values, st.builds(nodes.Choices, several)),
    st.builds(nodes.Membership, values, st.builds(nodes.Interval, values, values)),
    st.builds(nodes.Test, st.sampled_from(nodes.TESTS), values),
)


def _predicates_of(inner: st.SearchStrategy[nodes.Predicate]) -> st.SearchStrategy[nodes.Predicate]:
    operands = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(nodes.Not, inner),
        st.builds(nodes.And, operands),
        st.builds(nodes.Or, operands),
    )


predicates = st.recursive(comparisons, _predicates_of, max_leaves=4)
relations = st.builds(nodes.Relation, st.sampled_from([">", ">>", "<", "<<", "~", "!>", "!>>"]), predicates)
set_relations = st.builds(nodes.Relation, st.sampled_from(["and", "or", "without"]), predicates)
selections = st.one_of(
    predicates,
    st.builds(nodes.Structure, predicates, st.lists(relations, min_size=1, max_size=2).map(tuple)),
    st.builds(nodes.TraceSet, predicates, st.lists(set_relations, max_size=2).map(tuple)),
)
calls = st.builds(nodes.Call, st.one_of(words, st.sampled_from(["first", "last"])), st.just(()) | several)
by = st.just(()) | several
every = st.none() | st.builds(nodes.Every, numbers, st.booleans())
order_keys = st.builds(nodes.OrderKey, values, st.booleans())
stages = st.one_of(
    st.builds(nodes.Where, predicates),
    st.builds(nodes.Select, several),
    st.builds(nodes.Aggregate, st.lists(calls, min_size=1, max_size=2).map(tuple), by, every),
    st.builds(nodes.Across, fields, st.builds(nodes.Call, words, several), by),
    st.builds(nodes.OrderBy, st.lists(order_keys, min_size=1, max_size=2).map(tuple)),
    st.builds(nodes.Top, numbers, values),
    st.builds(nodes.First),
    st.builds(nodes.Last),
    st.builds(nodes.Limit, numbers),
)
queries = st.builds(nodes.Query, selections, st.lists(stages, max_size=3).map(tuple))
