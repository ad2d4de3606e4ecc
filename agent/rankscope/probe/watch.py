"""A watch: what is hooked into one model while it trains, and how it comes off again.

Phases. input: a fetch from the loader. forward: the model, to the end of the criterion if one was given.
backward: from the first gradient (a hook on the loss; on the model's output where no criterion was given)
to the end of the autograd engine's run, after the gradients have been reduced. optimizer: its `step`. Each
is opened only inside `run.step`; outside of one nothing is recorded but the fetch that the next step adopts.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.compiler import is_compiling
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from rankscope.probe.capture import Capture
from rankscope.probe.complaints import about_fast_paths, about_filters, about_model
from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.depth import Depth, Key
from rankscope.probe.graph import Node, data_parallel, joined, nodes_of, state_of, without_values
from rankscope.probe.hooks import Guard, Hook, guarded
from rankscope.probe.loader import TimedLoader
from rankscope.probe.meters import Meter
from rankscope.probe.model_rows import Absence, Intervals, absences, gap_block, modules_block
from rankscope.probe.module_hooks import ModuleHooks
from rankscope.probe.parameters import Parameters
from rankscope.probe.ports import Observer, OpenStep, Recording
from rankscope.probe.scaling import Scaling
from rankscope.probe.selection import Selection
from rankscope.probe.sheet import meter_of
from rankscope.probe.switching import Switch
from rankscope.probe.tensors import tensors_of
from rankscope.probe.torch_inner import OUTSIDE, current_backward, queue_callback
from rankscope.probe.values import Keeper
from rankscope_proto.names import GapCause, Phase, Role

logger = logging.getLogger(__name__)


class Watch:
    """The hooks of one model; made by `attach`.

    Use `detach` to take every hook off. A watch that fails three times switches itself off and says so
    in the log and in a gap; training is never touched.

    Attributes:
        model: What was handed to `watch`, wrappers included; None once detached.
        configuration: What is captured, and when.
        root: Path of the model in the rows: "", or `model2`, `model3` for further models of one run.
        selection: The nodes of the model by their paths.
        keeper: Keeps values that are asked for.
    """

    def __init__(
        self,
        recording: Recording,
        model: nn.Module,
        *,
        configuration: CaptureConfiguration,
        root: str = "",
        file: Path | None = None,
        meter_for: Callable[[torch.device], Meter] = meter_of,
    ) -> None:
        self.model: nn.Module | None = model
        self.configuration = configuration
        self.root = root
        self.recording = recording
        self.guard = Guard(self._note_switched_off)
        self._nodes = nodes_of(model, root)
        self._state = state_of(self._nodes)
        self.selection = Selection(self._nodes, joined(root, "loss"))
        self._switch = Switch(file, recording.clock.mono_ns)
        self._intervals = Intervals(recording)
        self._parameters = Parameters(self._nodes, configuration, guard=self.guard)
        self.capture = Capture(recording, configuration, parameters=self._parameters, root=root, meter_for=meter_for)
        self.keeper = self.capture.sheet.keeper = Keeper(recording, self.keys_of, values=configuration.values)
        self._modules = ModuleHooks(self.selection, self.capture, guard=self.guard)
        self._undo: list[Callable[[], object]] = []
        self._step: OpenStep | None = None
        self._has_criterion = self._has_optimizer = self._is_followed = False
        self._backward = OUTSIDE
        self._wrapper = data_parallel(model)
        self._fetch: tuple[int, int] | None = None

    def __repr__(self) -> str:
        state = "detached" if self.model is None else f"of {type(self.model).__name__}"
        return f"<Watch {state} level={self.configuration.level} every={self.configuration.every}>"

    @property
    def observer(self) -> Observer | None:
        """Who looks at rows beside the recording, and asks for more of them."""
        return self.capture.sheet.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self.capture.sheet.observer = observer

    def detach(self) -> None:
        """Take every hook off and hand over what was captured. Again: nothing happens."""
        if self.model is None:
            return
        self.model = self._wrapper = None
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._modules.remove()
        self._close_capture()
        observer, self.observer = self.observer, None
        if observer is not None:
            observer.closed()
        self._step = self._modules.step = None
        # Whoever keeps the probe does not keep the weights.
        self.selection.take(without_values(self._nodes))
        self._parameters.take([])
        self._nodes = []

    def run_finishing(self) -> None:
        """The run ends: what is still on a device is waited for, and the model is left as it was."""
        self.detach()

    def configure(self, configuration: CaptureConfiguration, from_step: int | None = None) -> None:
        """Capture by another configuration from a step on; from any thread.

        Args:
            configuration: What to capture then.
            from_step: The change is made when the first step of at least this number begins, so that ranks that are
                told in time change at the same one; None: at the next.
        """
        self._switch.ask(configuration, from_step)

    def keys_of(self, path: str, roles: Collection[Role] = ()) -> list[Key]:
        """What a path or a glob names; see `Selection.keys`."""
        return self.selection.keys(path, roles)

    def nearest(self, text: str) -> list[str]:
        """The paths of modules and parameters that look most like a text."""
        return self.selection.nearest(text)

    # What is hooked.

    def hook(
        self,
        *,
        optimizers: Sequence[Optimizer],
        scaler: GradScaler | None,
        criterion: nn.Module | None,
        loader: object | None,
    ) -> None:
        """Put the hooks on and describe the model; called once, by `attach`.

        Raises:
            ConfigError: If the loader cannot be wrapped in place.
        """
        if self.model is None:
            return
        if loader is not None:
            self._undo.append(TimedLoader(loader, self).restore)
        self._hook_model(self.model)
        if scaler is not None:
            self.capture.sheet.finishing.scaling = Scaling(scaler, self.recording, root=self.root)
        self._has_optimizer = bool(optimizers)
        for optimizer in optimizers:
            self._keep(optimizer.register_step_pre_hook(Hook(self, Watch._update_begins)))
            self._keep(optimizer.register_step_post_hook(Hook(self, Watch._update_ends)))
        if criterion is not None:
            self._has_criterion = True
            self._keep(criterion.register_forward_hook(Hook(self, Watch._criterion_ran, module=criterion)))
        self._describe(self.model)
        self._listen()
        self._complain(about_model(self.model), is_gap=True)
        self._complain(about_filters(self.configuration, self.selection), is_gap=False)
        self._complain(about_fast_paths(self._modules.modules, self._nodes), is_gap=False)

    def _hook_model(self, model: nn.Module) -> None:
        self._keep(model.register_forward_pre_hook(Hook(self, Watch._forward_begins, module=model)))
        self._modules.see_to(self.configuration, self.capture.sheet.raised)
        # After the layers' hooks: where the model itself is a layer, its output is checked before the phase ends.
        self._keep(model.register_forward_hook(Hook(self, Watch._forward_ends, module=model), always_call=True))

    def _listen(self) -> None:
        self.recording.add_step_listener(self)
        self.recording.add_loss_listener(self.loss_named)
        self._undo.append(lambda: self.recording.remove_step_listener(self))
        self._undo.append(lambda: self.recording.remove_loss_listener(self.loss_named))

    def _keep(self, handle: RemovableHandle) -> None:
        self._undo.append(handle.remove)

    # What the run tells.

    @guarded
    def step_started(self, step: OpenStep) -> None:
        """A step of the run begins."""
        if self.model is None or not self.recording.armed:
            return
        self._step = self._modules.step = step
        due = self._switch.due(step.step)
        if due is not None:
            self._change(due, step.step)
        if not self._is_followed or step.step % self.capture.cost.stride == 0:
            self._is_followed = True  # between `watch` and the first step a model is often moved to its device
            self._follow(self.model)
        self.keeper.begin(step)
        if self.observer is not None:
            self._raise(self.observer.raised(step.step))
        self.capture.begin(step)
        self._modules.step_begins()

    @guarded
    def step_ended(self, step: OpenStep) -> None:
        """A step of the run has ended."""
        if self._step is step:
            self._step = self._modules.step = None
            stride = self.capture.cost.stride
            try:
                self.capture.end()
            finally:
                self.keeper.end()
                if self.capture.cost.stride != stride:
                    self._state_absences(step.step + 1)

    def _change(self, configuration: CaptureConfiguration, step: int) -> None:
        self.configuration = configuration
        self._parameters.configure(configuration)
        self.capture.configure(configuration)
        self.keeper.values = configuration.values
        self._modules.see_to(configuration, self.capture.sheet.raised)
        self._state_absences(step)
        self._complain(about_filters(configuration, self.selection), is_gap=False)

    def _raise(self, raised: Mapping[Key, Depth]) -> None:
        if raised is not self.capture.sheet.raised:
            self.capture.raise_depths(raised)
            self._modules.see_to(self.configuration, raised)

    @guarded
    def loss_named(self, step: OpenStep, loss: object) -> None:
        """Take a tensor as the loss of the open step: check it, and see backward begin at it."""
        if self._step is step and isinstance(loss, Tensor):
            self.capture.loss(loss)
            self._await_backward(loss)

    # What the hooks do.

    def _forward_begins(self, _model: nn.Module, _args: object) -> None:
        if self._step is None:
            self._modules.rest()
        elif current_backward() == OUTSIDE:
            self._step.begin_phase(Phase.FORWARD)

    def _forward_ends(self, _model: nn.Module, _args: object, output: object, /) -> None:
        if self._step is None or current_backward() != OUTSIDE:
            return
        if self._has_criterion and torch.is_grad_enabled():
            return
        for _, tensor in tensors_of(output):
            self._await_backward(tensor)
        self._step.end_phase(Phase.FORWARD)

    def _criterion_ran(self, _criterion: nn.Module, _args: object, output: object, /) -> None:
        if self._step is None:
            return
        if isinstance(output, Tensor):
            self.capture.loss(output)
            self._await_backward(output)
        self._step.end_phase(Phase.FORWARD)

    def _await_backward(self, tensor: Tensor) -> None:
        if tensor.requires_grad:
            tensor.register_hook(Hook(self, Watch._gradient_arrived))

    def _gradient_arrived(self, _gradient: Tensor) -> None:
        backward = current_backward()
        if self._step is None or backward == self._backward:
            return
        self._backward = backward
        self._step.begin_phase(Phase.BACKWARD)
        self.capture.backward_begins(backward)
        # The reducer of data parallelism queues its own callback when its last bucket is ready, after this
        # one; so this one queues another, which runs when the gradients have been reduced.
        queue_callback(Hook(self, Watch._engine_done))

    def _engine_done(self) -> None:
        queue_callback(Hook(self, Watch._backward_ends))

    def _backward_ends(self) -> None:
        if self._step is None or self.model is None:
            return
        self._step.end_phase(Phase.BACKWARD)
        wrapper = self._wrapper
        self.capture.after_backward(reduced=wrapper is not None and wrapper.require_backward_grad_sync)
        self._modules.backward_ended()

    def _update_begins(self, optimizer: Optimizer, *_call: object) -> None:
        if self._step is None:
            return
        # A step that runs in a hook of backward is a part of backward.
        if current_backward() == OUTSIDE:
            self._step.begin_phase(Phase.OPTIMIZER)
        self.capture.update_begins(optimizer)

    def _update_ends(self, optimizer: Optimizer, *_call: object) -> None:
        if self._step is None:
            return
        self.capture.update_ends(optimizer)
        if current_backward() == OUTSIDE:
            self._step.end_phase(Phase.OPTIMIZER)

    def tensor(self, name: str, tensor: Tensor) -> None:
        """Look at any tensor of the open step as at a layer's output: its value now, its gradient when it arrives.

        Args:
            name: Path of the row, inside the watch's root, such as `blocks.0.scores`; its module is the one whose path
                it begins with. The configuration's filters apply to it.
            tensor: As it is now. Outside of a step, and while the compiler traces, nothing happens.
        """
        if not is_compiling():
            self._look_at(str(name), tensor)

    @guarded
    def _look_at(self, name: str, tensor: Tensor) -> None:
        if self._step is not None and current_backward() == OUTSIDE:
            self.capture.named(joined(self.root, name), tensor, nodes=self._nodes)

    @guarded
    def fetch_begins(self) -> None:
        """Training begins to wait for a batch."""
        if self._step is not None:
            self._step.begin_phase(Phase.INPUT)
        else:
            clock = self.recording.clock
            self._fetch = (clock.wall_ns(), clock.mono_ns())

    @guarded
    def fetch_ends(self, *, found: bool) -> None:
        """The batch is there; without one (the loader is exhausted) there is no input to speak of."""
        fetch, self._fetch = self._fetch, None
        if self._step is not None:
            self._step.end_phase(Phase.INPUT)
        elif fetch is not None and found:
            self.recording.note_input(*fetch)

    # What is said about the model and the watch.

    def _follow(self, model: nn.Module) -> None:
        """Describe the model again where it has changed since, and look at what it is made of now."""
        if state_of(self._nodes) == self._state:
            return
        self._nodes = nodes_of(model, self.root)
        self._state = state_of(self._nodes)
        self.selection.take(self._nodes)
        self._parameters.take(self._nodes)
        self._modules.see_to(self.configuration, self.capture.sheet.raised)
        self.recording.append(modules_block(self._nodes, self.recording.clock.wall_ns()))

    def _describe(self, model: nn.Module) -> None:
        now = self.recording.clock.wall_ns()
        self.recording.append(modules_block(self._nodes, now))
        self._state_absences(None)
        if self.configuration.level >= 1 and is_compiled(model, self._nodes):
            self._modules.is_unseen = True
            detail = "compiled: hooks do not run in compiled code, so layer outputs are not checked"
            self.recording.append(gap_block(GapCause.UNSUPPORTED, detail, time_ns=now))

    def _state_absences(self, step: int | None) -> None:
        left_out = self.selection.left_out(self.configuration)
        absent = absences(self.configuration, stride=self.capture.cost.stride, left_out=left_out)
        if self.configuration.level >= 2 and self.configuration.wants_role(Role.UPDATE) and not self._has_optimizer:
            absent.append(Absence(GapCause.UNSUPPORTED, "updates: watch was given no optimizer"))
        self._intervals.change(absent, step)

    def _complain(self, complaints: Iterable[str], *, is_gap: bool) -> None:
        for complaint in complaints:
            logger.warning("%s", complaint)
            if is_gap:
                now = self.recording.clock.wall_ns()
                self.recording.append(gap_block(GapCause.UNSUPPORTED, complaint, time_ns=now))

    def _close_capture(self) -> None:
        """Hand over what was captured and answer who waits, also of a watch that has switched itself off."""
        for close in (self.capture.close, self.keeper.close):
            try:
                close()
            except Exception as error:  # noqa: BLE001 - the boundary to training, which must go on
                self.guard.note("detach", error)

    def _note_switched_off(self, reason: str) -> None:
        now = self.recording.clock.wall_ns()
        self.recording.append(gap_block(GapCause.UNSUPPORTED, f"watch {reason}", time_ns=now))


def is_compiled(model: nn.Module, nodes: list[Node]) -> bool:
    """Whether the model, or a part of it, is run by the compiler."""
    return type(model).__name__ == "OptimizedModule" or any(
        vars(node.module).get("_compiled_call_impl") is not None for node in nodes
    )
