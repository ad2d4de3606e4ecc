"""Where DDP's reductions end: from DDP's own logger on the CPU, and from the future of the user's hook.

A hook of our own would cost 36 µs a bucket and change the bits of the loss (measured: `div_` for `mul_`), so none is
ever registered. The user's is called inside one of the same name and signature, and its result is handed on as it
is. DDP's logger costs 12.6 µs a reading and tells the backward before the last, so it is read once in a while.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn.parallel import DistributedDataParallel

from rankscope._labels import text_of
from rankscope.collectives.calls import FUTURE_EVERY, Calls
from rankscope.collectives.groups import Group, Groups, number_of
from rankscope.collectives.merge import Backward, Ends

if TYPE_CHECKING:
    from rankscope._recording import Recording

is_compiling = torch.compiler.is_compiling

_START, _END = "backward_comm_time_start", "backward_comm_time_end"
_MOST_MODULES = 4_096


class DataParallel:
    """What is known of the process's DDP modules, and of their hooks.

    Args:
        recording: Who records.
        groups: The process's groups.
        calls: The wrapped calls.
        ends: Takes what is told.
    """

    def __init__(self, recording: "Recording", groups: Groups, *, calls: Calls, ends: Ends) -> None:
        self._recording = recording
        self._groups = groups
        self._calls = calls
        self._ends = ends
        self._modules: weakref.WeakKeyDictionary[DistributedDataParallel, int] = weakref.WeakKeyDictionary()
        self._names: dict[tuple[int, int, int], str] = {}
        self._real: dict[str, Callable[..., Any]] = {}

    def wrap(self) -> None:
        """See the modules that are made, and the hooks that are registered, from now on."""
        changes = {"__init__": self._making, "register_comm_hook": self._registering}
        for name, change in changes.items():
            real = self._real[name] = getattr(DistributedDataParallel, name)
            setattr(DistributedDataParallel, name, change(real))

    def unwrap(self) -> None:
        """Put back what was there, unless another has changed it since."""
        for name, real in self._real.items():
            if getattr(getattr(DistributedDataParallel, name), "__wrapped__", None) is real:
                setattr(DistributedDataParallel, name, real)
        self._real.clear()

    def read(self, mono_of: Callable[[int], int]) -> None:
        """Ask each module's logger.

        Args:
            mono_of: The monotonic time of a time of C++.
        """
        for module, before in tuple(self._modules.items()):
            try:
                said = cast("Any", module)._get_ddp_logging_data()
                start, end = int(said.get(_START, 0)), int(said.get(_END, 0))
                if end > start > 0 and end != before:
                    group = self._groups.of(module.process_group)
                    self._ends.of_backwards.append(Backward(group, mono_of(start), mono_of(end)))
                    self._modules[module] = end
            except Exception as error:  # noqa: BLE001  # private to torch: without it the ends are not known
                self._modules.pop(module, None)
                self._recording.note_fault(f"{type(error).__qualname__} in DDP's logger: {text_of(error)}")

    @property
    def has_modules(self) -> bool:
        """Whether any has a logger to ask."""
        return bool(self._modules)

    def _making(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def made(module: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            real(module, *args, **kwargs)
            if self._recording.armed:
                self._begin(module)

        return made

    def _begin(self, module: DistributedDataParallel) -> None:
        try:
            # On a device the logger waits for events.
            if all(parameter.is_cpu for parameter in module.parameters()):
                cast("Any", module)._set_ddp_runtime_logging_sample_rate(1)
                self._modules[module] = 0
        except Exception as error:  # noqa: BLE001  # likewise
            self._recording.note_fault(f"{type(error).__qualname__} in DDP's logger: {text_of(error)}")

    def _registering(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def register_comm_hook(module: DistributedDataParallel, state: object, hook: Callable[..., Any]) -> None:
            if not self._recording.armed or not callable(hook):
                real(module, state, hook)
                return
            real(module, state, self._observed(module, hook))
            hooks = getattr(module, "_comm_hooks", None)
            if hooks:
                hooks[-1] = (hook, state)  # who asks DDP for its hook gets the one that was registered

        return register_comm_hook

    def _observed(self, module: DistributedDataParallel, hook: Callable[..., Any]) -> Callable[..., Any]:
        of = weakref.ref(module)
        # As long as DDP keeps the hook it keeps the group, too.
        process_group = cast("Any", module.process_group)
        inside = self._calls.inside

        @wraps(hook)
        def observed(state: object, bucket: Any) -> Any:
            if is_compiling() or not self._recording.armed:
                return hook(state, bucket)
            before = number_of(process_group)
            inside.hook = True
            try:
                future = hook(state, bucket)
            finally:
                inside.hook = False
            number = number_of(process_group)
            if before < number and not number % FUTURE_EVERY:
                self._watch((process_group, number), of(), bucket=bucket, future=future)
            return future

        return observed

    def _watch(
        self, call: tuple[Any, int], module: DistributedDataParallel | None, *, bucket: Any, future: Any
    ) -> None:
        try:
            group = self._groups.of(call[0])
            if module is None or not group.is_gloo:
                return  # a future of a device is done when it is enqueued
            name = self._name(module, bucket)
            future.add_done_callback(partial(self._is_over, (group, call[1]), name))
        except Exception as error:  # noqa: BLE001  # the user's hook has done its work
            self._recording.note_fault(f"{type(error).__qualname__} after a communication hook: {text_of(error)}")

    def _is_over(self, call: tuple[Group, int], name: str, _future: object, /) -> None:
        self._ends.of_hooks[call] = (self._recording.mono_ns(), name)

    def _name(self, module: DistributedDataParallel, bucket: Any) -> str:
        """Path of a bucket's first parameter; buckets are made anew after the first backward."""
        key = (id(module), bucket.index(), bucket.buffer().numel())
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= _MOST_MODULES:
                self._names.clear()
            name = self._names[key] = _path_of(cast("torch.nn.Module", module.module), bucket.parameters())
        return name


def _path_of(module: torch.nn.Module, parameters: Sequence[torch.Tensor]) -> str:
    if not parameters:
        return ""
    return next((name for name, each in module.named_parameters() if each is parameters[0]), "")
