"""Callables that torch may keep: they hold the watch weakly, never raise into training and return None.

The one exception is what somebody asked to have raised there, at a breakpoint (`Deliberate`).

Torch copies and pickles a module together with its hooks. A copy (an EMA model, a checkpoint of the
whole module) must neither record as the original nor fail to pickle, so both a copied and a pickled hook
are `Silent`.
"""

import functools
import logging
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from torch import jit, nn
from torch.compiler import is_compiling

from rankscope._bounds import NAME
from rankscope._labels import text_of
from rankscope._root_error import Deliberate

logger = logging.getLogger(__name__)

MAX_FAILURES = 3
"""A watch that has failed so often is switched off: by then the fault is in every step."""


class Guard:
    """Counts failures of one watch and switches it off.

    Args:
        switched_off: Called once, with the reason, when the watch is switched off.

    Attributes:
        failures: Failures so far.
        is_off: Whether the watch is switched off.
        is_timed: Whether hooks measure how long they take, which a few steps do.
        own_ns: What they took so far.
    """

    def __init__(self, switched_off: Callable[[str], object]) -> None:
        self._switched_off = switched_off
        self.failures = 0
        self.is_off = False
        self.is_timed = False
        self.own_ns = 0

    def note(self, where: str, error: Exception) -> None:
        """Count a failure; the first is logged with its traceback, the last switches off."""
        self.failures += 1
        if self.failures == 1:
            logger.warning(
                "rankscope's watch failed in %s and goes on without this value; training is not touched",
                where,
                exc_info=error,
            )
        if self.failures >= MAX_FAILURES and not self.is_off:
            self.is_off = True
            last = f"{type(error).__qualname__}: {text_of(error, NAME)}"
            self._switched_off(f"switched off after {self.failures} failures, the last in {where}: {last}")


class Guarded(Protocol):
    """An object whose guarded methods may fail."""

    guard: Guard


Owner = TypeVar("Owner", bound=Guarded)
Arguments = ParamSpec("Arguments")


def guarded(
    method: Callable[Concatenate[Owner, Arguments], object],
) -> Callable[Concatenate[Owner, Arguments], None]:
    """Make a method safe to be called by training: it returns None and raises no Exception but a `Deliberate` one."""

    @functools.wraps(method)
    def safe(owner: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        if owner.guard.is_off:
            return
        try:
            method(owner, *args, **kwargs)
        except Deliberate:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to training, which must go on
            owner.guard.note(method.__name__, error)

    return safe


class Silent:
    """What a copied or pickled hook becomes: it does nothing."""

    def __call__(self, *_args: object) -> None:
        """Do nothing."""


class Hook:
    """One hook of one watch.

    Training calls it often and with cold caches, where each Python frame costs 2 to 5 µs: it does the
    work of `guarded` itself instead of calling through it.

    Args:
        owner: The object that acts; held weakly.
        action: A method of the owner's class.
        module: If given, the only module it acts for: a shallow copy shares the original's hooks.
    """

    __slots__ = ("_action", "_module", "_owner")

    __name__ = "rankscope_hook"
    __torch_unserializable__ = True
    """Torch then warns of no hook that it does not save: not saving it is what is wanted."""

    def __init__(
        self, owner: Owner, action: Callable[Concatenate[Owner, ...], object], *, module: nn.Module | None = None
    ):
        self._owner = weakref.ref(owner)
        self._action: Callable[..., object] = action
        self._module = None if module is None else weakref.ref(module)

    def __call__(self, *args: object) -> None:
        """Act, unless the watch is gone or off, or the compiler is tracing (which would trace us too)."""
        if is_compiling() or jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]  # documented by torch
            return
        owner = self._owner()
        if owner is None:
            return
        guard = owner.guard
        if guard.is_off or (self._module is not None and args[0] is not self._module()):
            return
        began_ns = perf_counter_ns() if guard.is_timed else 0
        try:
            self._action(owner, *args)
        except Deliberate:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to training, which must go on
            guard.note(self._action.__name__, error)
        if began_ns:
            guard.own_ns += perf_counter_ns() - began_ns

    def __getattr__(self, name: str) -> object:
        """Say what to do to whoever takes it for a function, as torch.jit.script does."""
        raise AttributeError(
            f"a hook of rankscope's watch has no {name}: it cannot be scripted; "
            "call detach() on the watch before torch.jit.script, and watch the model again after it"
        )

    def __reduce__(self) -> tuple[type[Silent], tuple[()]]:
        return Silent, ()
