"""`run.trace_op`: one span for each call of a function, whatever kind of function it is.

Promises: the function behaves as before (return values, exceptions, `send`, `throw`, `close`, its name, its signature,
what `inspect` says of its kind); what is wrong with the decorator's arguments is said where it is written, not at the
first call; arguments and results are looked at under `capture="preview"` only.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, TypedDict, cast

from rankscope import _current
from rankscope._checked import checked_name, checked_rank, checked_step, hex_id, is_preview, kind_code
from rankscope._wrap import Arguments, Function, Inside, is_made_of, stepping
from rankscope_proto.names import Capture

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rankscope._links import Linkable
    from rankscope._recording import Recording
    from rankscope._run import Run
    from rankscope._span import Span


class OperationFields(TypedDict, total=False):
    """What the spans of an operation have in common; each as in `SpanFields`."""

    kind: str
    attributes: Mapping[str, object] | None
    metrics: Mapping[str, float] | None
    step: float | None
    rank: int | None
    thread_id: str | None
    rollout_id: str | None
    links: "Iterable[Linkable] | Linkable | None"
    capture: str | None
    trace_id: str | None
    parent_span_id: str | None


_REFUSED = {
    "span_id": "each call is a span of its own, and spans with one id could not be told apart",
    "inputs": 'the inputs are the arguments of each call, kept under capture="preview"',
}
"""Fields of a span that an operation cannot have, and why."""

_CHECKS: Mapping[str, Callable[[object], object]] = {
    "kind": kind_code,
    "step": checked_step,
    "rank": checked_rank,
    "capture": is_preview,
    "trace_id": lambda value: hex_id(value, 32),
    "parent_span_id": lambda value: hex_id(value, 16),
}
"""What is the programmer's mistake; all else about a span is data, which never raises."""

_RECEIVERS = ("self", "cls")


class Operation:
    """What the spans of decorated functions have in common.

    Args:
        run: Where they are recorded.
        name: What they are called; None: as the function is.
        fields: Their other fields.

    Raises:
        TypeError: a field that an operation does not have.
        ValueError: a field's value is none; names the choices or the range.
    """

    def __init__(self, run: "Run", name: str | None, *, fields: OperationFields) -> None:
        known = OperationFields.__annotations__
        for field in fields:
            if field in _REFUSED:
                raise TypeError(f"trace_op takes no {field}: {_REFUSED[field]}; leave it out")
            if field not in known:
                raise TypeError(f"trace_op has no {field!r}; it has {', '.join(sorted(known))}")
        self.run = run
        self.name = name
        self.fields = _checked(fields)
        self.captures = is_preview(fields.get("capture") or Capture.OFF)
        self.recording: Recording = run._recording  # pyright: ignore[reportPrivateUsage]  # internal to this distribution

    def decorate(self, function: Function) -> Function:
        """The function, each of its calls a span.

        Raises:
            TypeError: it is a class, or cannot be called.
        """
        if isinstance(function, staticmethod | classmethod):
            method = cast("staticmethod[..., object]", function)
            return cast("Function", type(method)(self.decorate(method.__func__)))
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"trace_op decorates a function or a method, not {function!r}")
        call = _Call(self, function)
        stepped = stepping(function, call.begin)
        if stepped is not None:
            return stepped
        return (_coroutine if is_made_of(inspect.iscoroutinefunction, function) else _plain)(function, call)


class _Call:
    """Makes the span of one call of one function.

    Args:
        operation: What the spans have in common.
        function: The function.
    """

    __slots__ = ("_make", "_name", "_operation", "_recording", "_signature", "captures")

    def __init__(self, operation: Operation, function: Callable[..., object]) -> None:
        self.captures = operation.captures
        self._operation = operation
        self._name = _name_of(function) if operation.name is None else operation.name
        self._recording = operation.recording
        self._make: Callable[..., Span] = partial(operation.run.span, self._name, **operation.fields)
        self._signature = _signature_of(function) if self.captures else None

    def span(self, args: tuple[object, ...], named: dict[str, object]) -> "Span":
        """A span for a call with these arguments; it is not started."""
        make = self._make if not self._recording.is_forked else self._made_here()
        return make(inputs=self._inputs(args, named)) if self.captures else make()

    def begin(self, arguments: Arguments) -> Inside:
        """A started span, current inside the generator that was called."""
        span = self.span(*arguments)
        return _SpanInside(span.start())

    def _made_here(self) -> "Callable[..., Span]":
        """Decorated before a fork: the child's own part of the same run is where its calls belong."""
        run = _current.get()
        if run is None or run.id != self._operation.run.id:
            return self._make
        return partial(run.span, self._name, **self._operation.fields)

    def _inputs(self, args: tuple[object, ...], named: dict[str, object]) -> Mapping[str, object]:
        """The arguments by the names of their parameters, without the object that a method is called on."""
        try:
            bound = self._signature.bind(*args, **named) if self._signature else None
        except TypeError:  # the function itself says it, in a moment
            bound = None
        if bound is None:
            return {"args": args, "kwargs": named}
        given = bound.arguments
        first = next(iter(given), "")
        return {name: value for name, value in given.items() if name != first or name not in _RECEIVERS}


class _SpanInside(Inside):
    """A generator's own span: current inside it, and over when it is.

    Args:
        span: A started span.
    """

    __slots__ = ("_span",)

    def __init__(self, span: "Span") -> None:
        super().__init__(span.recording.current, span)
        self._span = span

    def end(self, error: BaseException | None) -> None:
        """End the span as the generator ended."""
        self._span.__exit__(None if error is None else type(error), error, None)


def trace_op(
    run: "Run", name: Function | str | None, *, fields: OperationFields
) -> Function | Callable[[Function], Function]:
    """See `Run.trace_op`; a function instead of a name is decorated at once."""
    if name is None or isinstance(name, str):
        return Operation(run, None if name is None else checked_name(name), fields=fields).decorate
    if not callable(name):
        raise TypeError(f"the name of an operation is a text, not a {type(name).__qualname__}")
    return Operation(run, None, fields=fields).decorate(name)


def _checked(fields: OperationFields) -> OperationFields:
    """The fields, so that they can be used again and again.

    Not by making a span: sampling would count it, and nobody ever called the function.
    """
    for name, check in _CHECKS.items():
        value = fields.get(name)
        if value is not None:
            check(value)
    links = fields.get("links")
    if not isinstance(links, Iterator):
        return fields
    kept: OperationFields = {**fields, "links": tuple(links)}
    return kept


def _plain(function: Function, call: _Call) -> Function:
    make, captures = call.span, call.captures

    @wraps(function)
    def wrapper(*args: object, **named: object) -> object:
        with make(args, named) as span:
            result = function(*args, **named)
            if captures:
                span.set_output(result)
            return result

    return cast("Function", wrapper)


def _coroutine(function: Function, call: _Call) -> Function:
    @wraps(function)
    async def wrapper(*args: object, **named: object) -> object:
        with call.span(args, named) as span:
            result = await cast("Awaitable[object]", function(*args, **named))
            if call.captures:
                span.set_output(result)
            return result

    return cast("Function", wrapper)


def _name_of(function: Callable[..., object]) -> str:
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return None
