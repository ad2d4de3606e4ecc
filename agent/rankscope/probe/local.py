"""The probe of a model in this process: what `run.watch` returns.

It owns the `Watch` that is hooked into the model, and is the one that looks at its rows beside the recording:
for breakpoints, for subscribers, and for values that were asked for. As long as none of them is there it costs
a few comparisons a step.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from rankscope.errors import ConfigError
from rankscope.probe.asked import checked_ask, checked_change
from rankscope.probe.breakpoints import Actions, Armed, Breakpoints
from rankscope.probe.configuration import CaptureConfiguration, Trigger, Values
from rankscope.probe.contract import WHOLE, CaptureHandle, Description, OnHit, RuntimeProbe, Subscription
from rankscope.probe.depth import Depth, Key
from rankscope.probe.description import described
from rankscope.probe.events import EVERYTHING, EventFilter, HitEvent
from rankscope.probe.graph import enclosing, own_parameters, written_class
from rankscope.probe.names import role_of
from rankscope.probe.predicates import Predicate, Surroundings, predicate
from rankscope.probe.rows import OUTPUT_ROLES, Row, Subject
from rankscope.probe.subscriptions import Subscribers
from rankscope.probe.watch import Watch
from rankscope_proto.names import Role

logger = logging.getLogger(__name__)

CAPTURE = "capture"
"""What asked for values that nobody's breakpoint did."""

_DEPTHS = {0: Depth.NONE, 1: Depth.NORMS, 2: Depth.TABLE, 3: Depth.VALUES}


class Raised(NamedTuple):
    """A node that is looked at more closely for some steps, because of a hit.

    Attributes:
        node: Its path.
        depth: How closely.
        cause: Name of the breakpoint.
    """

    node: str
    depth: Depth
    cause: str


class LocalProbe:
    """A model in this process, as a `RuntimeProbe`; made by `run.watch`.

    Use `detach` to take every hook off. Everything may be asked from any thread, while training goes on.

    Args:
        watch: The hooks of the model; not observed by anybody else.
        header: What conditions may name that is the same for all rows of the process.

    Attributes:
        watch: The same.
        breakpoints: What is armed.

    Raises:
        ConfigError: A breakpoint of the configuration cannot be armed.
    """

    def __init__(self, watch: Watch, header: Mapping[str, object]) -> None:
        self.watch = watch
        self._model_version = watch.selection.version
        self._is_on_host = _is_on_host(watch)
        self._around = Surroundings(header, _of_modules(watch), is_on_host=self._is_on_host)
        self.breakpoints = Breakpoints(watch.recording, self, around=self._around)
        self._subscribers = Subscribers(watch.recording, is_late=not self._is_on_host)
        self._step = 0
        self._levels: dict[Raised, int] = {}  # the last step of each, inclusive
        self._causes: Mapping[Key, str] = {}
        self._raised: Mapping[Key, Depth] = {}
        self._raised_for: object = None
        self._configuration = watch.configuration
        self._written: dict[Trigger, Armed] = {}
        if watch.model is not None:
            self._take_triggers(self._configuration)
            watch.observer = self

    def __repr__(self) -> str:
        return repr(self.watch).replace("<Watch", "<LocalProbe", 1)

    @property
    def model(self) -> nn.Module | None:
        """What was handed to `watch`, wrappers included; None once detached."""
        return self.watch.model

    @property
    def configuration(self) -> CaptureConfiguration:
        """What is captured now, and when."""
        return self.watch.configuration

    @property
    def root(self) -> str:
        """Path of the model in the rows: "", or `model2`, `model3` for further models of one run."""
        return self.watch.root

    def tensor(self, name: str, tensor: Tensor) -> None:
        """Have a tensor that is no output of a module captured, and its gradient; see `Watch.tensor`."""
        self.watch.tensor(name, tensor)

    def detach(self) -> None:
        """Take every hook off and hand over what was captured. Again: nothing happens."""
        self.watch.detach()

    # The four verbs.

    def describe(self) -> Description:
        """What can be captured."""
        is_on_host = self._is_on_host if self.model is None else _is_on_host(self.watch)
        return described(self.watch, is_on_host=is_on_host)

    def subscribe(self, wanted: EventFilter = EVERYTHING) -> Subscription:
        """Events from now on, until the probe is detached; see `RuntimeProbe`."""
        for glob in wanted.nodes:
            self._keys(glob)
        return self._subscribers.add(wanted)

    def capture(
        self, nodes: Sequence[str], *, roles: Sequence[Role] = (), values: Values = WHOLE, step: int | None = None
    ) -> CaptureHandle:
        """Keep values of nodes, once; see `RuntimeProbe`."""
        checked_ask(nodes, values=values, step=step)
        for node in nodes:
            self._keys(node, roles)
        return self.watch.keeper.ask(nodes, cause=CAPTURE, roles=roles, values=values, step=step)

    def set_breakpoint(self, trigger: Trigger, *, callback: OnHit | None = None) -> Armed:
        """Judge a condition from the next step that begins; see `RuntimeProbe`.

        Returns:
            The breakpoint. Of a probe that is detached, or whose run records nothing, it is removed from the start.
        """
        armed = self.breakpoints.add(trigger, self._checked(trigger), callback=callback)
        if self.model is None:
            armed.remove()
        return armed

    def configure(self, configuration: CaptureConfiguration, *, from_step: int | None = None) -> None:
        """Capture by another configuration; see `RuntimeProbe`."""
        checked_change(configuration, from_step)
        for trigger in configuration.triggers:
            self._checked(trigger)
        self.watch.configure(configuration, from_step)

    # What the watch asks and tells: an `Observer`.

    def raised(self, step: int) -> Mapping[Key, Depth]:
        """What is armed and what hits have raised, a step beginning."""
        if self.watch.configuration is not self._configuration:
            self._change(self.watch.configuration)
        if self.watch.selection.version != self._model_version:
            self._renew()
        self._step = step
        if self._levels:
            self._levels = {raised: until for raised, until in self._levels.items() if until >= step}
        asked = self.watch.keeper.asked
        state = self.breakpoints.version, tuple(self._levels), bool(asked)
        if state != self._raised_for or asked:
            levels = [(key, raised) for raised in self._levels for key in self.watch.keys_of(raised.node)]
            self._causes = {key: raised.cause for key, raised in levels if raised.depth is Depth.VALUES}
            self._raised, self._raised_for = self._merged(levels, asked), state
        return self._raised

    def _merged(self, levels: Sequence[tuple[Key, Raised]], asked: Iterable[Key]) -> Mapping[Key, Depth]:
        """How closely to look at what breakpoints, levels and captures ask for: as the one that asks most."""
        by_level = ((key, raised.depth) for key, raised in levels)
        kept = ((key, Depth.TABLE) for key in asked)
        merged: dict[Key, Depth] = {}
        for key, depth in chain(self.breakpoints.depths(), by_level, kept):
            merged[key] = max(depth, merged.get(key, Depth.NONE))
        return merged

    def precise(self, key: Key) -> bool:
        """Whether a breakpoint judges it before training goes on."""
        return self.breakpoints.is_precise(key)

    def measured(self, row: Row, values: Tensor) -> None:
        """Judge a row before training goes on, and keep its values if its level is raised so far."""
        cause = self._causes.get(row.subject.key)
        if cause is not None:
            self.keep(row, values, cause=cause)
        self.breakpoints.measured(row, values)

    def settled(self, rows: Sequence[Row]) -> None:
        """Judge the rows of a step, and tell subscribers of them."""
        try:
            self.breakpoints.settled(rows)
        finally:
            if self._subscribers:
                self._subscribers.rows(rows)

    def closed(self) -> None:
        """Nothing is measured any more: breakpoints are gone, and iterations end."""
        self.breakpoints.clear()
        self._subscribers.close()

    # What hits do: `Actions`.

    def tell(self, event: HitEvent) -> None:
        """Tell subscribers of a hit."""
        self._subscribers.note(event)

    def keep(self, row: Row, values: Tensor | None, *, cause: str) -> None:
        """Keep the values of a row's tensor: these; None: those that it has in the next step."""
        keeper, subject = self.watch.keeper, row.subject
        if values is None:
            keeper.ask([subject.key[0]], cause=cause, roles=[role_of(subject.role)])
        else:
            keeper.keep(subject, values, phase=row.phase, microstep=row.microstep, cause=cause)

    def raise_level(self, row: Row, level: int, *, steps: int, cause: str) -> None:
        """Look at a row's node as a probe level does, for the next so many steps; the row may be of the one before."""
        raised = Raised(row.subject.key[0], _DEPTHS[level], cause)
        self._levels[raised] = max(self._step + steps, self._levels.get(raised, 0))

    # Nodes and conditions.

    def _change(self, configuration: CaptureConfiguration) -> None:
        """Another configuration holds from the step that begins; one from a file is only checked now."""
        try:
            self._take_triggers(configuration)
        except ConfigError as error:
            logger.warning("the breakpoints of capture configuration %s are left out: %s", configuration.name, error)
        self._configuration = configuration

    def _renew(self) -> None:
        """The model has other modules since the last step, or other devices."""
        self._model_version = self.watch.selection.version
        self._is_on_host = _is_on_host(self.watch)
        self._subscribers.is_late = not self._is_on_host
        self._around = Surroundings(self._around.header, _of_modules(self.watch), is_on_host=self._is_on_host)
        self.breakpoints.renew(self._around, self._checked)

    def _take_triggers(self, configuration: CaptureConfiguration) -> None:
        """Arm the breakpoints of a configuration; those that the one before had, too, go on counting."""
        for trigger in self._written.keys() - set(configuration.triggers):
            self._written.pop(trigger).remove()
        checked = {
            trigger: self._checked(trigger) for trigger in configuration.triggers if trigger not in self._written
        }
        self._written |= {trigger: self.breakpoints.add(trigger, asked) for trigger, asked in checked.items()}

    def _checked(self, trigger: Trigger) -> Predicate:
        keys = self._keys(trigger.node)
        subjects = [self._subject(key) for key in keys]
        asked = predicate(trigger.predicate, subjects, node=trigger.node, around=self._around)
        if trigger.precise and (asked.has_ratios or any(role == Role.UPDATE.code for _, role in asked.depths)):
            raise ConfigError(
                f"the condition of a breakpoint on {trigger.node} asks of updates or of ratios to the weight, which "
                f"are known when the step has ended: leave out precise=True, or these: {trigger.predicate}"
            )
        return asked

    def _keys(self, node: str, roles: Sequence[Role] = ()) -> list[Key]:
        """What a path or a glob names.

        Raises:
            ConfigError: Nothing.
        """
        if not isinstance(node, str):  # pyright: ignore[reportUnnecessaryIsInstance]  a caller may not be checked
            raise ConfigError(f"{node!r} names no node; write a path or a glob")
        keys = self.watch.keys_of(node, roles)
        if keys:
            return keys
        if self.watch.keys_of(node):
            raise ConfigError(f"{node} has no {', '.join(roles)}; ask for other roles, or for none")
        near = ", ".join(self.watch.nearest(node))
        hint = f"did you mean {near}?" if near else "describe() lists what there is"
        raise ConfigError(f"no module or tensor of the model is called {node}; {hint}")

    def _subject(self, key: Key) -> Subject:
        """What a row of a tensor is about, before there is one."""
        path, role = key
        at = self.watch.selection.node_at
        node = at.get(path) if role in OUTPUT_ROLES else at.get(path.rpartition(".")[0])
        if node is None:
            return Subject(path, self.root, None, "", role)
        return Subject(path, node.path, node.layer_index, str(node.layer_type), role)


def _is_on_host(watch: Watch) -> bool:
    """Whether all parameters of a model are on the CPU now."""
    return all(tensor.is_cpu for node in watch.selection.nodes for _, tensor in own_parameters(node.module))


def _of_modules(watch: Watch) -> Mapping[str, Mapping[str, str]]:
    """What conditions look up by the path of a module."""
    nodes = watch.selection.nodes
    blocks = {node.path for node in nodes if node.is_block}
    layers = {node.path: next(enclosing(node.path, blocks), None) for node in nodes}
    return {
        "module.class": {node.path: written_class(node.module).__name__ for node in nodes},
        "module.type": {node.path: str(node.layer_type) for node in nodes},
        "layer.path": {path: layer for path, layer in layers.items() if layer is not None},
    }


if TYPE_CHECKING:
    from rankscope.probe.ports import Observer

    _conforms: tuple[type[RuntimeProbe], type[Observer], type[Actions]] = LocalProbe, LocalProbe, LocalProbe
