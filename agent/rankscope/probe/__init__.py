"""What is captured from a running PyTorch model: spans of its phases and statistics of its tensors.

`Run.watch` returns a `LocalProbe`; a program that is to run on other sources too keeps to `RuntimeProbe`.
Importing this package does not import torch: what is said about probes can be sent to where there is none.
"""

from typing import TYPE_CHECKING

from rankscope.probe.configuration import Action, CaptureConfiguration, Part, Trigger, Values
from rankscope.probe.contract import (
    Breakpoint,
    CapturedTensor,
    CaptureHandle,
    Description,
    NodeInfo,
    NodeKind,
    RuntimeProbe,
    Subscription,
)
from rankscope.probe.events import EventFilter, GapEvent, HitEvent, ProbeEvent, SpanEvent, StatisticsEvent

if TYPE_CHECKING:
    from rankscope.probe.local import LocalProbe
else:
    from rankscope.probe.late import __getattr__  # noqa: F401 -- Python asks it for `LocalProbe`

__all__ = [
    "Action",
    "Breakpoint",
    "CaptureConfiguration",
    "CaptureHandle",
    "CapturedTensor",
    "Description",
    "EventFilter",
    "GapEvent",
    "HitEvent",
    "LocalProbe",
    "NodeInfo",
    "NodeKind",
    "Part",
    "ProbeEvent",
    "RuntimeProbe",
    "SpanEvent",
    "StatisticsEvent",
    "Subscription",
    "Trigger",
    "Values",
]
