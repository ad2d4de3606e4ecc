"""Functions that run under a span which their caller is not in: handed to a thread, a task, a callback.

A plain function and a coroutine run with the span current from their beginning to their end. A generator is not like
that: between two of its steps its consumer's code runs, in the same context. So what is current inside it is put away
at every `yield` and brought back for the next step; the consumer never sees it, and the generator never sees what its
consumer opened meanwhile.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from contextvars import ContextVar

    from rankscope._span_ref import SpanRef

Function = TypeVar("Function", bound=Callable[..., object])
T = TypeVar("T")

Arguments = tuple[tuple[object, ...], dict[str, object]]
"""What a function was called with: by position, and by name."""


class Inside:
    """What is current inside a generator's code, kept while it is suspended.

    Args:
        current: Where the innermost open span is kept.
        parent: What is current when its code begins.
    """

    __slots__ = ("_current", "_parent")

    def __init__(self, current: "ContextVar[SpanRef | None]", parent: "SpanRef | None") -> None:
        self._current = current
        self._parent = parent

    def step(self, resume: Callable[[], T]) -> T:
        """Let the generator's code run until it is suspended."""
        outside = self._current.get()
        self._current.set(self._parent)
        try:
            return resume()
        finally:
            self._parent = self._current.get()
            self._current.set(outside)

    async def astep(self, resume: Callable[[], Awaitable[T]]) -> T:
        """As `step`, of an asynchronous generator."""
        outside = self._current.get()
        self._current.set(self._parent)
        try:
            return await resume()
        finally:
            self._parent = self._current.get()
            self._current.set(outside)

    def end(self, error: BaseException | None) -> None:
        """The generator is over."""


Begin = Callable[[Arguments], Inside]
"""Called when a generator's code begins: what is current inside."""


def is_made_of(check: Callable[[object], bool], function: Callable[..., object]) -> bool:
    """Whether a function, or the `__call__` of an object, is of a kind that `inspect` knows."""
    return check(function) or check(type(function).__call__)


def wrapped(function: Function, current: "ContextVar[SpanRef | None]", parent: "SpanRef", /) -> Function:
    """The function, with `parent` current whenever its code runs.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(function):
        raise TypeError(f"wrap takes a function, not a {type(function).__qualname__}")
    made = _coroutine if is_made_of(inspect.iscoroutinefunction, function) else _plain
    stepped = stepping(function, lambda _: Inside(current, parent))
    return made(function, current, parent) if stepped is None else stepped


def stepping(function: Function, begin: Begin) -> Function | None:
    """The generator function, its code apart from its consumer's; None where it is no generator function."""
    if is_made_of(inspect.isasyncgenfunction, function):
        made = _async_generator(cast("Callable[..., AsyncGenerator[object, object]]", function), begin)
    elif is_made_of(inspect.isgeneratorfunction, function):
        made = _generator(cast("Callable[..., Generator[object, object, object]]", function), begin)
    else:
        return None
    return cast("Function", made)


def call_within(
    current: "ContextVar[SpanRef | None]",
    parent: "SpanRef | None",
    function: Callable[..., T],
    /,
    *args: object,
    **named: object,
) -> T:
    """Call a function with `parent` current."""
    token = current.set(parent)
    try:
        return function(*args, **named)
    finally:
        current.reset(token)


def _plain(function: Function, current: "ContextVar[SpanRef | None]", parent: "SpanRef", /) -> Function:
    @wraps(function)
    def wrapper(*args: object, **named: object) -> object:
        return call_within(current, parent, function, *args, **named)

    return cast("Function", wrapper)


def _coroutine(function: Function, current: "ContextVar[SpanRef | None]", parent: "SpanRef", /) -> Function:
    # The body of this coroutine, not its call: by the time that one is awaited the caller may be in another span.
    @wraps(function)
    async def wrapper(*args: object, **named: object) -> object:
        token = current.set(parent)
        try:
            return await cast("Awaitable[object]", function(*args, **named))
        finally:
            with suppress(ValueError):  # closed in another context than it began in
                current.reset(token)

    return cast("Function", wrapper)


def _generator(
    function: Callable[..., Generator[object, object, object]], begin: Begin
) -> Callable[..., Generator[object, object, object]]:
    @wraps(function)
    def wrapper(*args: object, **named: object) -> Generator[object, object, object]:
        inside = begin((args, named))
        try:
            returned = yield from _steps(function(*args, **named), inside)
        except BaseException as error:
            inside.end(error)
            raise
        inside.end(None)
        return returned

    return wrapper


def _steps(generator: Generator[object, object, object], inside: Inside) -> Generator[object, object, object]:
    """As `yield from generator`, each of its steps inside."""
    resume: Callable[[], object] = partial(next, generator)
    while True:
        try:
            item = inside.step(resume)
        except StopIteration as end:
            return end.value
        try:
            sent = yield item
        except GeneratorExit:
            inside.step(generator.close)
            raise
        except BaseException as error:  # noqa: BLE001  # whatever the consumer throws is the generator's to take
            resume = partial(generator.throw, error)
        else:
            resume = partial(generator.send, sent)


def _async_generator(
    function: Callable[..., AsyncGenerator[object, object]], begin: Begin
) -> Callable[..., AsyncGenerator[object, object]]:
    @wraps(function)
    async def wrapper(*args: object, **named: object) -> AsyncGenerator[object, object]:
        inside = begin((args, named))
        steps = _AsyncSteps(function(*args, **named), inside)
        try:
            while await steps.has_next():
                try:
                    steps.send((yield steps.item))
                except GeneratorExit:
                    await steps.close()
                    raise
                except BaseException as error:  # noqa: BLE001  # as above
                    steps.throw(error)
        except BaseException as error:
            inside.end(error)
            raise
        inside.end(None)

    return wrapper


class _AsyncSteps:
    """The steps of an asynchronous generator, each inside: `yield from` does not exist there.

    Attributes:
        item: What it yielded last.
    """

    __slots__ = ("_generator", "_inside", "_resume", "item")

    def __init__(self, generator: AsyncGenerator[object, object], inside: Inside) -> None:
        self._generator = generator
        self._inside = inside
        self._resume: Callable[[], Awaitable[object]] = generator.__anext__
        self.item: object = None

    async def has_next(self) -> bool:
        """Resume it as it was told; whether it yielded."""
        try:
            self.item = await self._inside.astep(self._resume)
        except StopAsyncIteration:
            return False
        return True

    def send(self, value: object) -> None:
        """Its next step gets a value."""
        self._resume = partial(self._generator.asend, value)

    def throw(self, error: BaseException) -> None:
        """Its next step gets an exception."""
        self._resume = partial(self._generator.athrow, error)

    async def close(self) -> None:
        """End it where it stands."""
        await self._inside.astep(self._generator.aclose)
