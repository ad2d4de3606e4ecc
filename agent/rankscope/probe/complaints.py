"""What a watch cannot do for a model it is given, told when it is attached; never a reason not to train."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from torch import nn

from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.graph import Node
from rankscope.probe.selection import Selection
from rankscope.probe.torch_inner import is_fake, is_flattened

_FAST_IN_EVALUATION = (nn.TransformerEncoderLayer, nn.MultiheadAttention)
"""Modules that leave their fast path where they, or modules inside them, carry hooks (torch 2.4 to 2.13)."""


def about_model(model: nn.Module) -> Iterator[str]:
    """Why there may be nothing to measure in a model."""
    parameters = list(model.parameters())
    name = type(model).__name__
    if any(is_flattened(module) for module in model.modules()):
        yield (
            f"{name} is sharded by FullyShardedDataParallel without use_orig_params=True: its parameters are one flat "
            "vector a unit, and their paths, norms and gradients are of that; pass "
            "use_orig_params=True, or use fully_shard"
        )
    if not parameters:
        yield f"{name} has no parameters: there are no weights and no gradients of it, only outputs and phases"
    elif all(parameter.is_meta or is_fake(parameter) for parameter in parameters):
        yield (
            f"the parameters of {name} have no values (meta or fake tensors): nothing of it is measured until it is "
            "given real ones, by to_empty() and a checkpoint for one"
        )


def about_filters(configuration: CaptureConfiguration, selection: Selection) -> Iterator[str]:
    """Which globs name nothing, with the paths that look most like them."""
    filters = [("include", glob) for glob in configuration.include]
    for name, glob in [*filters, *(("exclude", glob) for glob in configuration.exclude)]:
        if not any(fnmatchcase(path, glob) for path in selection.paths()):
            nearest = selection.nearest(glob)
            told = f"the nearest are {', '.join(nearest)}" if nearest else f"there are {_some(selection.paths())}"
            yield f"{name}={glob!r} matches no module and no parameter of the model; {told}"


def about_fast_paths(hooked: Iterable[nn.Module], nodes: Iterable[Node]) -> Iterator[str]:
    """Which modules leave a fast path because of hooks."""
    ours = {id(module) for module in hooked}
    slowed = [
        node.path or type(node.module).__name__
        for node in nodes
        if isinstance(node.module, _FAST_IN_EVALUATION) and any(id(inner) in ours for inner in node.module.modules())
    ]
    if slowed:
        yield (
            f"hooks turn off the fast path that {slowed[0]} ({len(slowed)} such modules) takes in evaluation without "
            "gradients; training has none. For inference at full speed detach() the watch, or exclude= them"
        )


def _some(paths: Iterable[str]) -> str:
    found = list(paths)
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
