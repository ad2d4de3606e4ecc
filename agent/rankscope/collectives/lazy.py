"""Waits for a process group: until there is one, nothing of torch is loaded, and nothing is wrapped."""

import sys
from typing import TYPE_CHECKING, Any, cast

from rankscope._gc_spans import CollectionSpans
from rankscope._labels import text_of
from rankscope.collectives.recorder import ask_for_size

if TYPE_CHECKING:
    from rankscope._run import Run
    from rankscope._step import Step


class Awaited:
    """Begins to record a run's collectives once there are any to come.

    Args:
        run: Whose.
        is_wanted: Whether collectives are to be recorded.
        with_gc: Whether garbage collections are.
    """

    def __init__(self, run: "Run", *, is_wanted: bool, with_gc: bool) -> None:
        self._run = run
        self._recording = run._recording  # pyright: ignore[reportPrivateUsage]  # internal to this distribution
        self._is_wanted = is_wanted
        self._spans = CollectionSpans(self._recording) if with_gc else None
        self._since_ns = self._recording.mono_ns()
        self._is_over = False

    def begin(self) -> None:
        """Begin now where several ranks have loaded torch, else with the first step that has a process group."""
        if self._is_wanted:
            ask_for_size()
        self._recording.add_step_listener(self)
        try:
            self._look(is_early=self._recording.identity.world_size > 1)
        except Exception as error:  # noqa: BLE001  # a torch that is not as expected is no reason not to train
            self._recording.note_fault(f"{type(error).__qualname__} where collectives are wrapped: {text_of(error)}")

    def step_started(self, step: "Step", /) -> None:
        """See whether there is a process group."""
        del step
        if not self._is_over:
            self._look(is_early=False)

    def step_ended(self, step: "Step", /) -> None:
        """Nothing to do."""

    def run_finishing(self) -> None:
        """Look at garbage collections no more."""
        if self._spans is not None:
            self._spans.end()

    def _look(self, *, is_early: bool) -> None:
        distributed = cast("Any", sys.modules.get("torch.distributed"))
        if getattr(distributed, "is_initialized", None) is None:  # not loaded, or half of it, in another thread
            return
        if not distributed.is_available() or not (is_early or distributed.is_initialized()):
            return
        self._is_over = True
        if self._spans is not None:
            self._spans.begin()
        if self._is_wanted:
            from rankscope.collectives.attach import attach  # not at the top: it needs torch

            attach(self._run, since_ns=self._since_ns)
