"""Random syntax trees over names that there are: most are right, or wrong in one thing."""

from hypothesis import strategies as st

from rankscope.tql import nodes
from rankscope.tql.fields import FIELDS
from rankscope.tql.functions import FUNCTIONS
from rankscope.tql.history import HISTORIES
from rankscope.tql.words import ACROSS, AGGREGATES, UNITS

Values = st.SearchStrategy[nodes.Value]

KEYS = ["attr.x", "metric.x", "run.config.lr", "mesh.dp", 'attr."odd key"', "count", "spread", "nothing.here"]
TEXTS = ["a", "", "error", "grad", "2026-11-29", "0011223344556677", "a+", "(", "é"]


def _ref(name: str) -> nodes.FieldRef:
    scope, _, key = name.partition(".")
    return nodes.FieldRef(scope, key.strip('"')) if key else nodes.FieldRef("", scope)


def _one(names: list[str]) -> Values:
    return st.sampled_from(names).map(_ref)


def _number(texts: list[str], units: list[str]) -> st.SearchStrategy[nodes.Number]:
    return st.builds(nodes.Number, st.sampled_from(texts), st.sampled_from(units))


def _joined(operators: str, left: Values, right: Values) -> Values:
    return st.builds(nodes.Arithmetic, st.sampled_from(operators), left, right)


def _call(functions: list[str], *arguments: Values) -> st.SearchStrategy[nodes.Call]:
    return st.builds(nodes.Call, st.sampled_from(functions), st.tuples(*arguments))


def _of_numbers(inner: Values) -> Values:
    return st.one_of(
        _joined("+-*/%", inner, inner),
        st.builds(nodes.Negate, inner),
        _call(["abs", "sqrt", "log2", "log10"], inner),
        _call(["min", "max", "ratio"], inner, inner),
    )


def _of_durations(inner: Values) -> Values:
    return st.one_of(_joined("+-%", inner, inner), _joined("*/", inner, plain), _call(["abs"], inner))


plain = _number(["1", "3", "0.5", "10"], [""])
spans = st.one_of(
    _one(["rank", "step", "span.depth", "metric.x", "attr.x", "span.child_count"]),
    _call(["prev", "delta"], _one(["metric.x", "rank"])),
    _call(["ema"], _one(["metric.x"]), st.just(nodes.Number("10"))),
)
counts = st.recursive(st.one_of(spans, spans, plain), _of_numbers, max_leaves=3)
lengths = st.recursive(
    st.one_of(_one(["span.duration", "span.self_duration"]), _number(["1", "5"], ["ns", "ms", "s"])),
    _of_durations,
    max_leaves=3,
)
texts = st.one_of(_one(["span.name", "span.path", "attr.x", "run.name"]), st.sampled_from(TEXTS).map(nodes.Text))
wild = st.one_of(
    st.sampled_from([*FIELDS, *KEYS]).map(_ref),
    _number(["0", "1e400", "9223372036854775808"], ["", *UNITS]),
    st.sampled_from(TEXTS).map(nodes.Text),
    st.booleans().map(nodes.Boolean),
    st.builds(nodes.Call, st.sampled_from([*FUNCTIONS, *HISTORIES, "p50"]), st.lists(counts, max_size=2).map(tuple)),
)
values = st.one_of(counts, counts, lengths, texts, wild)
orders = st.sampled_from(["==", "!=", "<", ">="])
listed = st.lists(plain, min_size=1, max_size=2).map(lambda items: nodes.Choices(tuple(items)))
comparisons = st.one_of(
    st.builds(nodes.Comparison, orders, counts, counts),
    st.builds(nodes.Comparison, orders, lengths, lengths),
    st.builds(nodes.Comparison, orders, texts, texts),
    st.builds(nodes.Comparison, orders, wild, values),
    st.builds(nodes.Match, st.sampled_from(["=~", "!~"]), texts, st.sampled_from(TEXTS).map(nodes.Text)),
    st.builds(nodes.Contains, texts, texts),
    st.builds(nodes.Membership, counts, listed),
    st.builds(nodes.Membership, lengths, st.builds(nodes.Interval, lengths, lengths)),
    st.builds(nodes.Test, st.sampled_from(nodes.TESTS), counts),
)
operands = st.lists(comparisons, min_size=2, max_size=2).map(tuple)
predicates = st.one_of(
    comparisons, st.builds(nodes.Not, comparisons), st.builds(nodes.And, operands), st.builds(nodes.Or, operands)
)
relations = st.builds(nodes.Relation, st.sampled_from([">", ">>", "<", "<<", "~", "!>", "!>>"]), predicates)
set_relations = st.builds(nodes.Relation, st.sampled_from(["and", "or", "without"]), predicates)
selections = st.one_of(
    predicates,
    predicates,
    st.builds(nodes.Structure, predicates, st.lists(relations, min_size=1, max_size=2).map(tuple)),
    st.builds(nodes.TraceSet, predicates, st.lists(set_relations, max_size=2).map(tuple)),
)
calls = st.one_of(
    _call(["count", "rate"]),
    _call(["sum", "avg", "p50", "max", "first", "distinct", "stddev"], st.one_of(counts, lengths)),
    _call(["quantile"], counts, st.just(nodes.Number("0.5"))),
    _call([*AGGREGATES, "spread"], values),
)
compared = st.one_of(
    _call(["spread", "skew", "zscore", "outliers", "slowest", "agree", "median"], st.one_of(counts, lengths)),
    _call(["count_ranks", "missing_ranks"]),
    _call([*ACROSS, "count"], values),
)
by = st.lists(st.one_of(counts, texts, wild), max_size=2).map(tuple)
made = _one(["count", "spread", "p50", "rank", "step"])
axes = st.sampled_from(["rank", "rank", "mesh.dp", "layer", "step"]).map(_ref)
every = st.one_of(
    st.none(),
    st.builds(nodes.Every, _number(["10"], [""]), st.just(value=True)),
    st.builds(nodes.Every, _number(["30"], ["s", ""]), st.just(value=False)),
)
order_keys = st.lists(st.builds(nodes.OrderKey, st.one_of(made, values), st.booleans()), min_size=1, max_size=2)
stages = st.one_of(
    st.builds(nodes.Where, st.one_of(predicates, st.builds(nodes.Comparison, orders, made, plain))),
    st.builds(nodes.Select, st.lists(values, min_size=1, max_size=2).map(tuple)),
    st.builds(nodes.Aggregate, st.lists(calls, min_size=1, max_size=2).map(tuple), by, every),
    st.builds(nodes.Across, axes, compared, by),
    st.builds(nodes.OrderBy, order_keys.map(tuple)),
    st.builds(nodes.Top, _number(["3", "0"], [""]), st.one_of(made, values)),
    st.sampled_from([nodes.First(), nodes.Last(), nodes.Limit(nodes.Number("5"))]),
)
queries = st.builds(nodes.Query, selections, st.lists(stages, max_size=3).map(tuple))
