"""What tells one series of a process from another: the rows that `prev`, `delta`, `ema` and `robust_z` look back on."""

from collections.abc import Mapping

from rankscope.tql.fields import Entity

_SAME_TENSOR = ("tensor.call", "tensor.reduced")  # a step has a gradient before and after its reduction

SERIES: Mapping[Entity, tuple[str, ...]] = {
    Entity.TENSOR: ("tensor.name", "tensor.role", "microstep", "tensor.microbatch", "phase", *_SAME_TENSOR),
    Entity.SPAN: ("span.name", "span.kind", "span.path", "span.thread_id"),
    Entity.SCALAR: ("scalar.name",),
    Entity.COLLECTIVE: ("collective.group", "collective.op"),
    Entity.SYSTEM: ("system.name", "system.device"),
}
"""The fields of each entity that do; other entities have no history."""
