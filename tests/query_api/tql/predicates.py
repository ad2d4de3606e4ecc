"""Random predicates over the awkward rows, as text that passes the check."""

import dataclasses

from hypothesis import strategies as st

COUNTS = ["0", "1", "7", "18446744073709551615", "9223372036854775808", "0.5"]
REALS = ["0", "-0.0", "0.1", "8", "100.5", "-3.0e38", "1.4e-45", "100"]
NAMES = ["layers.0.attn", "λ/é.weight", "x'); DROP TABLE spans --", '"q" \\ {p0:String}', "layers", "LAYERS.0"]


@dataclasses.dataclass(frozen=True)
class Kind:
    """Fields that compare with the same literals."""

    fields: list[str]
    literals: list[str]
    ordered: bool = True
    is_float: bool = False


TENSOR_KINDS = [
    Kind(["tensor.nan_count", "tensor.nonfinite_count"], COUNTS),
    Kind(["tensor.absmax", "tensor.mean"], REALS, is_float=True),
    Kind(["tensor.l2"], ["0", "100", "1e308", "5e-324", "-1.5"], is_float=True),
    Kind(["tensor.name", "module.path", "layer.type"], [*map(repr, NAMES), "'attention'", "'layers.0'"]),
    Kind(["tensor.role"], ["'grad'", "'weight'", "'activation'", "'buffer'"], ordered=False),
    Kind(["phase"], ["'forward'", "'backward'"], ordered=False),
    Kind(["rank"], ["0", "1", "2147483647", "0.5", "-0.5"]),
    Kind(["step", "microstep", "layer.index"], ["0", "5", "1", "3", "2.5"]),
    Kind(["tensor.fingerprint"], ["'ffffffffffffffff'", "'0000000000000000'"], ordered=False),
]
SPAN_KINDS = [
    Kind(["span.kind"], ["'reward'", "'system'"], ordered=False),
    Kind(["span.status"], ["'ok'", "'error'"], ordered=False),
    Kind(["span.duration"], ["5ms", "0ns", "-1ns", "1s", "1.5us", "1000000h"]),
    Kind(["span.start", "span.end"], ["'2026-11-29T17:01:53.005Z'", "'2026-11-29T19:01:54+02:00'"]),
    Kind(["span.name", "span.error_type"], [*map(repr, NAMES), "'ValueError'"]),
    Kind(["step"], ["0", "5", "6", "9223372036854775807"]),
    Kind(["attr.device", "attr.x", 'attr."odd key\'"'], ["'cuda:0'", "''", "'true'", "'ü'", "'3'"]),
    Kind(["attr.n", "attr.x"], ["0", "3", "2.5", "1e300"], is_float=True),
    Kind(["metric.reward"], ["0", "-1"], is_float=True),
    Kind(["span.parent_id"], ["'00000000000007d3'", "'00000000000007d4'"], ordered=False),
    Kind(["span.trace_id"], ["'0000000000000007000000000000000" + digit + "'" for digit in "0123"], ordered=False),
]


def texts(kinds: list[Kind]) -> st.SearchStrategy[str]:
    """Whole predicates as text."""
    return st.recursive(st.sampled_from(kinds).flatmap(_leaf), _joined, max_leaves=6)


def _leaf(kind: Kind) -> st.SearchStrategy[str]:
    field, literal = st.sampled_from(kind.fields), st.sampled_from(kind.literals)
    operators = ["==", "!="] + (["<", "<=", ">", ">="] if kind.ordered else [])
    leaves: list[st.SearchStrategy[str]] = [
        st.tuples(field, st.sampled_from(operators), literal).map(" ".join),
        st.tuples(literal, st.sampled_from(operators), field).map(" ".join),
        st.tuples(st.sampled_from(["exists", "missing"]), field).map(_call),
        st.tuples(field, st.lists(literal, min_size=1, max_size=3)).map(
            lambda pair: f"{pair[0]} in [{', '.join(pair[1])}]"
        ),
    ]
    if kind.is_float:
        leaves.append(st.tuples(st.sampled_from(["isnan", "isinf", "isfinite"]), field).map(_call))
    if kind.ordered and not any(letter in "".join(kind.literals) for letter in "'h"):
        leaves.append(st.tuples(field, literal, literal).map(_interval))
    if len(kind.fields) > 1 and not kind.fields[0].startswith("attr"):
        leaves.append(st.tuples(field, st.sampled_from(operators), field).map(" ".join))
    return st.one_of(leaves)


def _call(pair: tuple[str, str]) -> str:
    return f"{pair[0]}({pair[1]})"


def _interval(parts: tuple[str, str, str]) -> str:
    low, high = sorted(parts[1:], key=float)
    return f"{parts[0]} in {low}..{high}"


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        inner.map(lambda text: f"not ({text})"),
        several.map(lambda parts: f"({' and '.join(parts)})"),
        several.map(lambda parts: f"({' or '.join(parts)})"),
    )
