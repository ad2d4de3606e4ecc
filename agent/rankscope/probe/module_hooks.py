"""The hooks on modules whose outputs are looked at: put on and taken off as what is asked for changes.

They are on only where something is looked at: torch takes 1 to 3 µs to call any hook, even an empty one. They come off
when the model is called outside of a step, as evaluation does, and are put on again by the next step (3 µs a hook); in
steps that look at no output they are off, and calls are spans only in steps that are captured in full. Hooks that have
never run stay on: compiled code does not run them, but is compiled again where they are not what they were. So does the
hook of the model itself, which has to come before the one that ends the phase, and one beside another's: that may
change the output, and what ours sees must not depend on when it was put on.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from rankscope.probe.capture import Capture
from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.depth import Depth, Key
from rankscope.probe.graph import Node
from rankscope.probe.hooks import Guard, Hook
from rankscope.probe.outputs import ACTIVATION
from rankscope.probe.rows import OUTPUT_ROLES, Subject
from rankscope.probe.selection import Selection
from rankscope.probe.torch_inner import OUTSIDE, current_backward, is_scripted, is_sole_forward_hook
from rankscope_proto.names import GapCause, Role

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from rankscope.probe.ports import OpenStep


class _Hooked(NamedTuple):
    """How a module is hooked: chosen by the configuration or asked for beyond it, and whether calls are spans."""

    is_chosen: bool
    has_spans: bool


class _On(NamedTuple):
    """Which hooks are on now: those that look at outputs, and those that begin spans."""

    look: bool
    begin: bool


_ON, _OFF = _On(look=True, begin=True), _On(look=False, begin=False)


class ModuleHooks:
    """The hooks of one watch on modules.

    Args:
        selection: The model's nodes.
        capture: Looks at the outputs.
        guard: Of the watch.

    Attributes:
        step: The open step; None: nothing is looked at.
        is_unseen: Whether it was said that hooks do not run.
    """

    def __init__(self, selection: Selection, capture: Capture, *, guard: Guard) -> None:
        self._selection = selection
        self._capture = capture
        self.guard = guard
        self.step: OpenStep | None = None
        self.is_unseen = False
        self._see: Callable[[Subject, object], None] = capture.outputs.see
        self._subjects: dict[int, Subject] = {}
        self._hooked: dict[int, _Hooked] = {}
        self._nodes: dict[int, Node] = {}
        self._looking: dict[int, RemovableHandle] = {}
        self._beginning: dict[int, RemovableHandle] = {}
        self._running: set[int] = set()
        self._on: tuple[_On, int] = _ON, 0
        self._has_raised = False

    @property
    def count(self) -> int:
        """Modules that are hooked."""
        return len(self._hooked)

    @property
    def modules(self) -> list[nn.Module]:
        """They themselves."""
        nodes = self._selection.nodes
        return [node.module for node in nodes if id(node.module) in self._hooked]

    def see_to(self, configuration: CaptureConfiguration, raised: Mapping[Key, Depth]) -> None:
        """Hook what a configuration has looked at, and what is asked for beyond it, and nothing else."""
        has_spans = configuration.level >= 2 and configuration.wants_role(Role.ACTIVATION)
        # The model's own call is the phase forward, and where it is the only model its path is no name.
        wanted = {
            id(node.module): (node, _Hooked(is_chosen=True, has_spans=has_spans and node.path != ""))
            for node in self._selection.outputs(configuration)
        }
        self._has_raised = any(role in OUTPUT_ROLES for _, role in raised)
        for path, role in raised:
            node = self._selection.node_at.get(path) if role in OUTPUT_ROLES else None
            if node is not None:
                wanted.setdefault(id(node.module), (node, _Hooked(is_chosen=False, has_spans=False)))
        for known, hooked in list(self._hooked.items()):
            if known not in wanted or wanted[known][1] != hooked:
                self._unhook(known)
        for node, hooked in wanted.values():
            if id(node.module) not in self._hooked:
                self._hook(node, hooked)

    def step_begins(self) -> None:
        """A step begins, and what is looked at in it is known: have those hooks on that it needs."""
        outputs = self._capture.outputs
        look = self._has_raised or outputs.depth is not Depth.NONE or outputs.gradient_depth is not Depth.NONE
        self._have_on(_On(look=look, begin=self._capture.is_deep))

    def rest(self) -> None:
        """The model is called outside of a step: nothing is looked at until the next one begins."""
        self._have_on(_OFF)

    def backward_ended(self) -> None:
        """Gradients have arrived: say once if no hooked module ran for them."""
        if self._hooked and self._on[0].look and not self._capture.outputs.count and not self.is_unseen:
            self.is_unseen = True
            detail = (
                "no hooked module ran, though gradients arrived: hooks do not run in compiled code, nor where "
                "forward() is called directly, so layer outputs are not checked"
            )
            self._capture.sheet.gap(GapCause.UNSUPPORTED, detail)

    def remove(self) -> None:
        """Take every hook off."""
        for known in list(self._hooked):
            self._unhook(known)
        self._subjects = {}

    def _hook(self, node: Node, hooked: _Hooked) -> None:
        module = node.module
        if id(module) not in self._subjects:
            subject = Subject(node.path, node.path, node.layer_index, str(node.layer_type), ACTIVATION)
            self._subjects[id(module)] = subject
        self._hooked[id(module)], self._nodes[id(module)] = hooked, node
        if is_scripted(module):
            self._capture.sheet.gap(GapCause.UNSUPPORTED, f"{node.path}: a scripted module takes no hooks")
            return
        self._have_on_module(module, _ON)

    def _have_on(self, on: _On) -> None:
        state = on, len(self._running)
        if state == self._on:
            return
        self._on = state
        root = self._selection.nodes[0].module if self._selection.nodes else None
        for known in list(self._running):
            module = self._nodes[known].module
            if module is not root:
                self._have_on_module(module, on)

    def _have_on_module(self, module: nn.Module, on: _On) -> None:
        known, hooked = id(module), self._hooked[id(module)]
        if on.look and known not in self._looking:
            action = ModuleHooks._ran if hooked.is_chosen else ModuleHooks._raised_ran
            # One that comes back was the only one: those that are there by now came after it.
            is_back = known in self._running
            self._looking[known] = module.register_forward_hook(Hook(self, action, module=module), prepend=is_back)
        elif not on.look and is_sole_forward_hook(module):
            _take_off(self._looking, known)
        if not (on.begin and hooked.has_spans):
            _take_off(self._beginning, known)
        elif known not in self._beginning:
            hook = Hook(self, ModuleHooks._begins, module=module)
            self._beginning[known] = module.register_forward_pre_hook(hook)

    def _unhook(self, known: int) -> None:
        _take_off(self._looking, known)
        _take_off(self._beginning, known)
        del self._hooked[known], self._nodes[known]
        self._running.discard(known)
        self._subjects.pop(known, None)
        self._capture.outputs.forget()  # what it knows is by the subject's id, which may soon be another's

    def _begins(self, module: nn.Module, _args: object) -> None:
        step = self.step
        if step is not None and self._capture.is_deep and current_backward() == OUTSIDE:
            step.begin_module(self._subjects[id(module)].name)

    def _ran(self, module: nn.Module, _args: object, output: object, /) -> None:
        # A checkpointed layer runs again in backward; its first run has been recorded.
        step = self.step
        if step is None or current_backward() != OUTSIDE:
            return
        self._running.add(id(module))
        subject = self._subjects[id(module)]
        if self._capture.is_deep:
            step.end_module(subject.name)
        self._see(subject, output)

    def _raised_ran(self, module: nn.Module, _args: object, output: object, /) -> None:
        if self.step is not None and current_backward() == OUTSIDE:
            self._running.add(id(module))
            self._capture.outputs.see_raised(self._subjects[id(module)], output)


def _take_off(handles: "dict[int, RemovableHandle]", known: int) -> None:
    if known in handles:
        handles.pop(known).remove()
