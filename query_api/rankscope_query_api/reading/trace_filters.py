"""What a filter of traces becomes: conditions that the row of a trace meets by being in a set of traces.

A condition on one span is the set of traces with such a span; status and duration are put together from such sets. So
what is read follows what is asked for, and the rows themselves need no more than the id of a trace.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

import math
import string
from collections.abc import Iterable, Mapping, Sequence

from rankscope_proto.names import SpanStatus
from rankscope_proto.sections_spans import ATTRIBUTE_WORDS, attribute_word
from rankscope_query_api.living import RunningSpan
from rankscope_query_api.reading.open_now import OpenTrace, scope_values, scoped
from rankscope_query_api.summaries import RUNNING
from rankscope_query_api.values import TraceFilter, TraceScope

LEAST_ID_DIGITS = 4
"""Ids are random digits: a shorter part of one is in nearly every trace, and `42` would find them all."""

_FAILED, _CANCELLED, _INTERRUPTED = SpanStatus.ERROR.code, SpanStatus.CANCELLED.code, SpanStatus.INTERRUPTED.code

_TEXTS = ("name", "thread_id", "rollout_id", "error_type", "inputs", "outputs", "error_preview")

_TRACE_HEX = "concat(leftPad(lower(hex(trace_hi)), 16, '0'), leftPad(lower(hex(trace_lo)), 16, '0'))"
_SPAN_HEX = "leftPad(lower(hex(span_id)), 16, '0')"

_OF_ONE_SPAN = {
    "first_step": "toInt64(ifNull(step, -1)) >= {first_step:Int64} AND step IS NOT NULL",
    "last_step": "toInt64(ifNull(step, -1)) <= {last_step:Int64} AND step IS NOT NULL",
    "rank": "rank = {rank:Int32}",
    "kind": "kind = {kind:UInt8}",
    "name": "name = {name:String}",
    "error_type": "error_type = {error_type:String}",
}
"""Fields of `TraceFilter` that say something of a span, and how."""


class TraceSets:
    """The conditions of a filter, and what they are bound to.

    Args:
        scope: Where traces are looked for.
        where: Which are meant; its window is left to the reader, which knows when a trace starts.
        open_now: What is open in the scope.

    Attributes:
        columns: The columns that name a trace within the scope.
        has_window: Whether traces are meant by their start as well.
        values: Values of all placeholders, the scope's among them.
        conditions: What a row with these columns must meet, as the rest of a WHERE; empty: everything does.
    """

    def __init__(
        self, scope: TraceScope, where: TraceFilter, *, open_now: Mapping[OpenTrace, Sequence[RunningSpan]]
    ) -> None:
        self._scope = scope
        self._filter = where
        self._open = open_now
        self._of_run = scoped(scope.run)
        self.columns = "trace_hi, trace_lo" if scope.run is not None else "run_id, trace_hi, trace_lo"
        self.has_window = where.since_ns is not None or where.until_ns is not None
        self.values = scope_values(scope)
        self.conditions = "".join(f"\n    AND {condition}" for condition in self._conditions())

    def bound(self, traces: Iterable[OpenTrace], *, name: str) -> str:
        """A SELECT of `columns` of these traces, which are bound; see `values`."""
        listed = sorted(traces)
        self.values |= {f"{name}_his": [hi for _, hi, _ in listed], f"{name}_los": [lo for _, _, lo in listed]}
        arrays, picked = f"{{{name}_his:Array(UInt64)}}, {{{name}_los:Array(UInt64)}}", "one.1, one.2"
        if self._scope.run is None:
            self.values[f"{name}_runs"] = [run for run, _, _ in listed]
            arrays, picked = f"{{{name}_runs:Array(String)}}, {arrays}", "one.1, one.2, one.3"
        return f"SELECT {picked} FROM (SELECT arrayJoin(arrayZip({arrays})) AS one)"

    def _conditions(self) -> list[str]:
        made: list[str] = []
        if alike := self._of_one_span():
            fitting = [trace for trace, spans in self._open.items() if any(fits(self._filter, span) for span in spans)]
            made.append(self._is_in(self._spans(alike), open_too=fitting, name="fitting"))
        if self._filter.terms:
            made.append(self._is_in(self._searched()))
        if self._filter.status is not None:
            made += self._of_status(self._filter.status)
        if self._filter.least_ns is not None or self._filter.most_ns is not None:
            made.append(self._is_in(self._of_duration()))
        return made

    def _is_in(self, selected: str, *, open_too: Sequence[OpenTrace] = (), name: str = "") -> str:
        stored = f"({self.columns}) IN ({selected})"
        return f"({stored} OR ({self.columns}) IN ({self.bound(open_too, name=name)}))" if open_too else stored

    def _spans(self, condition: str) -> str:
        return f"SELECT {self.columns} FROM spans WHERE {self._of_run} AND {condition}"

    def _of_one_span(self) -> str:
        given = {name: getattr(self._filter, name) for name in _OF_ONE_SPAN}
        given = {name: value for name, value in given.items() if value is not None}
        self.values |= given
        attributes = [self._of_attribute(*pair, number=number) for number, pair in enumerate(self._filter.attributes)]
        return " AND ".join([*(_OF_ONE_SPAN[name] for name in given), *attributes])

    def _of_attribute(self, key: str, value: str, *, number: int) -> str:
        """SQL: the attribute is that text, or the number that the text is.

        A text is looked up in its index; the map is not read.
        """
        self.values[f"word{number}"] = attribute_word(key, value)
        text = f"has({ATTRIBUTE_WORDS}, {{word{number}:String}})"
        if (as_number := _number(value)) is None:
            return text
        self.values |= {f"key{number}": key, f"number{number}": as_number}
        named = f"{{key{number}:String}}"
        return f"({text} OR mapContains(numbers, {named}) AND numbers[{named}] = {{number{number}:Float64}})"

    def _of_status(self, status: str) -> list[str]:
        failed = self._is_in(self._spans(f"status = {_FAILED}"))
        if status == SpanStatus.ERROR.value:
            return [failed]
        runs = self._is_in(self.bound(self._open, name="open")) if self._open else "false"
        if status == RUNNING:
            return [runs, f"NOT {failed}"]
        at_rest = [f"NOT {runs}"] if self._open else []
        if status == SpanStatus.CANCELLED.value:
            return [*at_rest, self._is_in(self._spans(f"status = {_CANCELLED}")), f"NOT {failed}"]
        cut = self._is_in(self._spans(f"status = {_INTERRUPTED}"))
        not_whole = self._is_in(self._spans(f"status != {_INTERRUPTED} AND {cut}"))
        if status == SpanStatus.INTERRUPTED.value:
            return [*at_rest, cut, f"NOT {not_whole}"]
        worse = self._is_in(self._spans(f"status IN ({_FAILED}, {_CANCELLED})"))
        return [*at_rest, f"NOT {worse}", f"(NOT {cut} OR {not_whole})"]

    def _of_duration(self) -> str:
        least, most = self._filter.least_ns, self._filter.most_ns
        self.values |= {
            "least_ns": -(2**63) if least is None else least,
            "most_ns": 2**63 - 1 if most is None else most,
        }
        return f"""
        SELECT {self.columns} FROM trace_index WHERE {self._of_run} GROUP BY {self.columns}
        HAVING max(last_end) - min(first_start) BETWEEN {{least_ns:Int64}} AND {{most_ns:Int64}}"""

    def _searched(self) -> str:
        """Traces in whose rows every term occurs: each row says which do in it, as bits."""
        terms = self._filter.terms
        ids = {number: term.lower() for number, term in enumerate(terms) if _is_id(term)}
        self.values |= {f"term{number}": term for number, term in enumerate(terms)}
        self.values |= {f"digits{number}": digits for number, digits in ids.items()}
        in_spans = _bits((number, _in_span(number, term, is_id=number in ids)) for number, term in enumerate(terms))
        rows = [f"SELECT {self.columns}, {in_spans} AS bits FROM spans WHERE {self._of_run}"]
        if ids:
            in_ids = _bits((number, f"position({_TRACE_HEX}, {{digits{number}:String}}) > 0") for number in ids)
            rows.append(f"SELECT {self.columns}, {in_ids} AS bits FROM trace_index WHERE {self._of_run}")
        rows += self._open_bits(terms)
        return f"""
        SELECT {self.columns} FROM ({" UNION ALL ".join(rows)})
        WHERE bits != 0
        GROUP BY {self.columns}
        HAVING groupBitOr(bits) = {2 ** len(terms) - 1}"""

    def _open_bits(self, terms: Sequence[str]) -> list[str]:
        """For each combination of terms that the open spans of a trace show, those traces."""
        alike: dict[int, list[OpenTrace]] = {}
        for trace, spans in self._open.items():
            bits = sum(1 << number for number, term in enumerate(terms) if _shows(trace, spans, term=term))
            alike.setdefault(bits, []).append(trace)
        return [
            f"SELECT *, toUInt8({bits}) AS bits FROM ({self.bound(traces, name=f'bits{bits}')})"
            for bits, traces in sorted(alike.items())
            if bits
        ]


def fits(where: TraceFilter, span: RunningSpan) -> bool:
    """Whether an open span is as a filter says of one span; what it may say only at its end, it does not."""
    if where.error_type is not None or where.attributes:
        return False
    if (where.first_step is not None or where.last_step is not None) and span.step is None:
        return False
    return (
        where.kind in {None, span.kind}
        and where.name in {None, span.name}
        and where.rank in {None, span.rank}
        and (where.first_step is None or where.first_step <= (span.step or 0))
        and (where.last_step is None or (span.step or 0) <= where.last_step)
    )


def _bits(matches: Iterable[tuple[int, str]]) -> str:
    """SQL of a byte whose bits say which of these hold."""
    return "toUInt8(" + " + ".join(f"({match}) * {1 << number}" for number, match in matches) + ")"


def _in_span(number: int, term: str, *, is_id: bool) -> str:
    """SQL: the term of that number occurs in a row of `spans`."""
    needle = f"{{term{number}:String}}"
    tries = [f"positionCaseInsensitiveUTF8({text}, {needle}) > 0" for text in _TEXTS]
    tries.append(f"arrayExists(text -> positionCaseInsensitiveUTF8(text, {needle}) > 0, mapValues(attributes))")
    if set(term) <= set("0123456789.+-einfaEINFA"):
        shown = f"position(lower(toString(number)), lower({needle})) > 0"
        tries.append(f"arrayExists(number -> {shown}, mapValues(numbers))")
    if is_id:
        tries.append(f"position({_SPAN_HEX}, {{digits{number}:String}}) > 0")
    return " OR ".join(tries)


def _shows(trace: OpenTrace, spans: Sequence[RunningSpan], *, term: str) -> bool:
    """Whether a term occurs in what is known of a trace's open spans."""
    wanted = term.casefold()
    if any(wanted in span.name.casefold() for span in spans):
        return True
    ids = (f"{trace[1]:016x}{trace[2]:016x}", *(f"{span.span_id:016x}" for span in spans))
    return _is_id(term) and any(wanted in one for one in ids)


def _is_id(term: str) -> bool:
    return LEAST_ID_DIGITS <= len(term) <= 32 and set(term) <= set(string.hexdigits)


def _number(text: str) -> float | None:
    """The finite number that a text is; None: it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
