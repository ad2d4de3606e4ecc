"""Figures of NVIDIA's GPUs, where `nvidia-ml-py` (the extra `system`) and the driver's library are there.

Each figure is asked for by itself: what a device cannot tell, such as corrected errors of a card without ECC, is left
out, and so is all of it where there is no driver. A call may wait for a driver that does not answer: it is made from
the sampler's own thread, and whoever waits there holds up no one.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from rankscope.agent.sampler.figures import Figure

MOST_GPUS = 16
_NOT_TOLD = 0xFFFF_FFFF_FFFF_FFFF


class Gpus:
    """Reads them.

    Args:
        library: What speaks with the driver; default: `pynvml`, None where that is not installed.
    """

    def __init__(self, library: Any = None) -> None:
        self._library: Any = library or _library()
        self._is_open = False

    def read(self) -> Iterator[Figure]:
        """The figures of now."""
        library = self._library
        if library is None or not self._open():
            return
        count = 0
        with contextlib.suppress(library.NVMLError):
            count = min(int(library.nvmlDeviceGetCount()), MOST_GPUS)
        for index in range(count):
            with contextlib.suppress(library.NVMLError):  # of one that is lost; those behind it are asked
                yield from self._of(library.nvmlDeviceGetHandleByIndex(index), f"gpu{index}")

    def close(self) -> None:
        """Let go of the driver."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(self._library.NVMLError):
                self._library.nvmlShutdown()

    def _open(self) -> bool:
        """Whether the driver answers; where it does not it is not asked again."""
        if not self._is_open:
            try:
                self._library.nvmlInit()
                self._is_open = True
            except self._library.NVMLError:
                self._library = None
        return self._is_open

    def _of(self, gpu: Any, device: str) -> Iterator[Figure]:
        for name, ask in _FIGURES.items():
            with contextlib.suppress(self._library.NVMLError):
                value = ask(self._library, gpu)
                if value != _NOT_TOLD:  # as a whole number: no float is equal to it
                    yield Figure(name, float(value), device)


def _errors(library: Any, gpu: Any, *, kind: int) -> int:
    return int(library.nvmlDeviceGetTotalEccErrors(gpu, kind, library.NVML_VOLATILE_ECC))


_FIGURES: dict[str, Callable[[Any, Any], float]] = {
    "gpu.busy": lambda library, gpu: library.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "gpu.memory_used": lambda library, gpu: library.nvmlDeviceGetMemoryInfo(gpu).used,
    "gpu.memory_total": lambda library, gpu: library.nvmlDeviceGetMemoryInfo(gpu).total,
    "gpu.temperature": lambda library, gpu: library.nvmlDeviceGetTemperature(gpu, library.NVML_TEMPERATURE_GPU),
    "gpu.clock_sm": lambda library, gpu: library.nvmlDeviceGetClockInfo(gpu, library.NVML_CLOCK_SM) * 1e6,
    "gpu.power": lambda library, gpu: library.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "gpu.ecc_corrected": lambda library, gpu: _errors(library, gpu, kind=library.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "gpu.ecc_uncorrected": lambda library, gpu: _errors(library, gpu, kind=library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
}
"""Name of each figure -> how it is asked for."""


def _library() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None
