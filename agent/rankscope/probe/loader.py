"""Times what training waits for its input, by wrapping the loader in place.

`for batch in loader` looks `__iter__` up on the loader's class, so the loader is given a subclass of its
own class; everything else about it (isinstance, attributes, workers) stays as it was.
"""

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from rankscope.errors import ConfigError


class FetchListener(Protocol):
    """Told when training begins and ends waiting for a batch."""

    def fetch_begins(self) -> None:
        """A fetch begins."""
        ...

    def fetch_ends(self, *, found: bool) -> None:
        """It ended; `found` is False when the loader is exhausted or raised."""
        ...


class TimedFetches:
    """An iterator over batches that reports each fetch.

    Args:
        batches: The loader's own iterator.
        listener: Told about each fetch while it lives.
    """

    def __init__(self, batches: Iterator[object], listener: "weakref.ref[FetchListener]") -> None:
        self._batches = batches
        self._listener = listener

    def __iter__(self) -> "TimedFetches":
        return self

    def __next__(self) -> object:
        listener = self._listener()
        if listener is None:
            return next(self._batches)
        listener.fetch_begins()
        found = False
        try:
            batch = next(self._batches)
            found = True
        finally:
            listener.fetch_ends(found=found)
        return batch

    def __len__(self) -> int:
        return len(cast("list[object]", self._batches))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


class TimedLoader:
    """A loader whose fetches are timed until `restore`.

    Args:
        loader: Any iterable whose class can be subclassed, a DataLoader above all.
        listener: Told about each fetch; held weakly.

    Raises:
        ConfigError: If the loader's class cannot be replaced (a list, a generator), or is no iterable.
    """

    def __init__(self, loader: object, listener: FetchListener) -> None:
        self._loader = loader
        self._own_class = type(loader)
        try:
            timed = _timed_class(self._own_class, weakref.ref(listener))
            loader.__class__ = timed
        except (TypeError, AttributeError) as error:
            raise ConfigError(
                f"a {self._own_class.__name__} cannot be timed in place; pass a DataLoader (or an object of a class "
                'of your own) as loader=, or fetch inside `with step.phase("input")`'
            ) from error
        self._timed_class = timed

    def restore(self) -> None:
        """Give the loader its own class back, unless someone else has replaced it since."""
        if type(self._loader) is self._timed_class:
            self._loader.__class__ = self._own_class


def _timed_class(own_class: type[Any], listener: "weakref.ref[FetchListener]") -> type[Any]:
    own_iter: Callable[[object], Iterator[object]] = own_class.__iter__
    own_reduce: Callable[[object, int], object] = cast("Any", own_class).__reduce_ex__

    def timed_iter(self: object) -> TimedFetches:
        return TimedFetches(own_iter(self), listener)

    def reduce(self: object, protocol: int, /) -> object:
        # Pickles as what it is without us: the class made here has no importable name.
        reduced = cast("tuple[Any, ...]", own_reduce(self, protocol))
        arguments = tuple(own_class if argument is timed else argument for argument in reduced[1])
        return (_make, (reduced[0], *arguments), *reduced[2:])

    members = {"__iter__": timed_iter, "__reduce_ex__": reduce, "__slots__": (), "__module__": own_class.__module__}
    timed = type(own_class.__name__, (own_class,), members)
    return timed


def _make(make: Callable[..., object], *arguments: object) -> object:
    """What the pickle of a timed loader calls; pickle would refuse `__newobj__` for another class than its own."""
    return make(*arguments)
