"""Whether the installed torch has what a watch is made of; asked before the probe is loaded, which needs all of it."""

import importlib
from functools import reduce

from rankscope.errors import ConfigError

OLDEST = "2.4"
"""The first release that has all of them, and that is tested."""

NEEDED = (
    "nn.Module.register_forward_hook",
    "Tensor.register_post_accumulate_grad_hook",
    "autograd.Variable._execution_engine.queue_callback",
    "compiler.is_compiling",
    "get_device_module",
    "_C._current_graph_task_id",
    "_C._functorch.is_functorch_wrapped_tensor",
    "_foreach_norm",
)


def check_torch() -> None:
    """Refuse a torch that lacks something.

    Raises:
        ConfigError: there is none, or it is too old; says what to do.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ConfigError(f"watch observes PyTorch models, and torch cannot be imported here: {error}") from error
    missing = [name for name in NEEDED if not _has(torch, name)]
    if missing:
        raise ConfigError(
            f"torch {getattr(torch, '__version__', '')} has no {missing[0]}, which watch needs: install torch {OLDEST} "
            "or later, or leave watch out; spans, metrics and steps are recorded without it"
        )


def _has(root: object, dotted: str) -> bool:
    try:
        reduce(getattr, dotted.split("."), root)
    except AttributeError:
        return False
    return True
