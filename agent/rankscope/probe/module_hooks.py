"""The hooks on modules whose outputs are looked at: put on and taken off as what is asked for changes."""

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
from rankscope.probe.torch_inner import OUTSIDE, current_backward, is_scripted
from rankscope_proto.names import GapCause, Role

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from rankscope.probe.ports import OpenStep


class _Hooked(NamedTuple):
    """How a module is hooked: chosen by the configuration or asked for beyond it, and whether calls are spans."""

    is_chosen: bool
    has_spans: bool


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
        self._handles: dict[int, list[RemovableHandle]] = {}

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

    def backward_ended(self) -> None:
        """Gradients have arrived: say once if no hooked module ran for them."""
        if self._hooked and not self._capture.outputs.count and not self.is_unseen:
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
        action = ModuleHooks._ran if hooked.is_chosen else ModuleHooks._raised_ran
        self._hooked[id(module)] = hooked
        if is_scripted(module):
            self._handles[id(module)] = []
            self._capture.sheet.gap(GapCause.UNSUPPORTED, f"{node.path}: a scripted module takes no hooks")
            return
        handles = [module.register_forward_hook(Hook(self, action, module=module))]
        if hooked.has_spans:
            handles.append(module.register_forward_pre_hook(Hook(self, ModuleHooks._begins, module=module)))
        self._handles[id(module)] = handles

    def _unhook(self, known: int) -> None:
        del self._hooked[known]
        self._subjects.pop(known, None)
        self._capture.outputs.forget()  # what it knows is by the subject's id, which may soon be another's
        for handle in self._handles.pop(known):
            handle.remove()

    def _begins(self, module: nn.Module, _args: object) -> None:
        step = self.step
        if step is not None and self._capture.is_deep and current_backward() == OUTSIDE:
            step.begin_module(self._subjects[id(module)].name)

    def _ran(self, module: nn.Module, _args: object, output: object, /) -> None:
        # A checkpointed layer runs again in backward; its first run has been recorded.
        step = self.step
        if step is None or current_backward() != OUTSIDE:
            return
        subject = self._subjects[id(module)]
        if self._capture.is_deep:
            step.end_module(subject.name)
        self._see(subject, output)

    def _raised_ran(self, module: nn.Module, _args: object, output: object, /) -> None:
        if self.step is not None and current_backward() == OUTSIDE:
            self._capture.outputs.see_raised(self._subjects[id(module)], output)
