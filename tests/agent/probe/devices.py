"""The host in the part of an accelerator: copies arrive when the test says so."""

from collections.abc import Sequence

import torch
from torch import Tensor


class LateEvent:
    """An event that has passed when its device has been told to catch up, or been waited for."""

    def __init__(self, device: "HostAsDevice") -> None:
        self._device = device

    def query(self) -> bool:
        self._device.refuse_in_graph()
        return not self._device.is_behind

    def synchronize(self) -> None:
        self._device.refuse_in_graph()
        self._device.waits += 1


class HostAsDevice:
    """A device whose memory is the host's; `is_behind` keeps its events from passing, `is_in_graph` captures one."""

    def __init__(self) -> None:
        self.is_behind = False
        self.is_in_graph = False
        self.waits = 0
        self.buffers = 0

    def refuse_in_graph(self) -> None:
        """As CUDA does, which also ends the capture."""
        if self.is_in_graph:
            raise RuntimeError("operation not permitted when stream is capturing")

    def host_buffer(self, size: int) -> Tensor:
        self.refuse_in_graph()
        self.buffers += 1
        return torch.empty(size)

    def send(self, packed: Tensor, host: Tensor) -> LateEvent:
        self.refuse_in_graph()
        host.copy_(packed, non_blocking=True)
        return LateEvent(self)

    def launched(self) -> None:
        """The host has one stream."""

    def join(self, made: Sequence[Tensor]) -> None:
        """Nothing to join."""

    def is_capturing(self) -> bool:
        return self.is_in_graph
