"""A training whose layer gives tensors of every type, and keeps their values: `python -m tests.system.kept`."""

import torch
from torch import Tensor, nn

import rankscope
from rankscope_proto.names import Role

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128),
)


def contents() -> list[Tensor]:
    """Any bits of every type (NaNs with payloads among them), no dimension, no element, and more than one chunk."""
    source = torch.Generator().manual_seed(7)

    def bits(dtype: torch.dtype, *shape: int) -> Tensor:
        most = 2 if dtype is torch.bool else 256
        flat = torch.randint(0, most, (*shape, dtype.itemsize), dtype=torch.uint8, generator=source)
        return flat.view(dtype).view(shape)

    odd = [bits(torch.float32), bits(torch.bfloat16, 0, 3), bits(torch.float32, 4, 5).t()]
    return [*(bits(dtype, 3, 5) for dtype in DTYPES), *odd, bits(torch.bfloat16, 700, 2000)]


class Every(nn.Module):
    """Gives the contents, whatever it is given."""

    def forward(self, _x: Tensor) -> list[Tensor]:
        """The contents."""
        return contents()


class Model(nn.Module):
    """A layer, and one that gives the contents."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.every = Every()

    def forward(self, x: Tensor) -> Tensor:
        """The first layer's output."""
        self.every(x)
        return self.head(x)


def main() -> None:
    """Trains two steps, and keeps the contents in the second and again in the third."""
    model = Model()
    with rankscope.init() as run:
        probe = run.watch(model, level=1, every=10)
        for index in range(4):
            pending = probe.capture(["every"], roles=[Role.ACTIVATION]) if index in (1, 2) else None
            with run.step(index):
                model(torch.ones(1, 3)).sum().backward()
            assert pending is None or pending.is_done


if __name__ == "__main__":
    main()
