"""What a probe is asked for, checked where it is asked: what is wrong with it would else show in training, later."""

from collections.abc import Collection

from rankscope.errors import ConfigError
from rankscope.probe.configuration import CaptureConfiguration, Values


def checked_ask(nodes: object, *, values: object, step: object) -> None:
    """Check what `capture` is given.

    Raises:
        ConfigError: It cannot be captured so.
    """
    if isinstance(nodes, str) or not isinstance(nodes, Collection):
        raise ConfigError(f"nodes is {nodes!r}; write a sequence of paths, such as ['head']")
    if not nodes:
        raise ConfigError("nodes is empty; name modules or tensors, or a glob such as *")
    if not isinstance(values, Values):
        raise ConfigError(f"values is {values!r}; pass a Values")
    _refuse_no_step("step", step)


def checked_change(configuration: object, from_step: object) -> None:
    """Check what `configure` is given.

    Raises:
        ConfigError: It is no configuration, or no step.
    """
    if not isinstance(configuration, CaptureConfiguration):
        raise ConfigError(f"the configuration is a {type(configuration).__name__}; pass a CaptureConfiguration")
    _refuse_no_step("from_step", from_step)


def _refuse_no_step(name: str, step: object) -> None:
    if step is not None and (not isinstance(step, int) or isinstance(step, bool) or step < 0):
        raise ConfigError(f"{name} is {step!r}; write the number of a step, or leave it out for the next")
