"""The fingerprint of a tensor: same bytes, same number, on every rank, machine and way of computing it.

It is what tells whether replicas hold the same weights, so it has no tolerance and depends on positions. Defined over
the elements in logical order (strides do not matter), each as its bytes in memory on a little-endian machine.

Definition, all arithmetic modulo 2^64: the bytes are padded with zeros to a multiple of 8 and read as little-endian
32-bit words, and these in runs of 512. `mix(z)` is the finish of splitmix64: `z ^= z >> 30; z *=
0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB; z ^= z >> 31`. Key i is the upper half of `mix((i + 1) *
G)` with `G = 0x9E3779B97F4A7C15`. A run's hash is the sum over its pairs of words (a, b) at 2i and 2i + 1 of
`(a ^ key[2i]) * (b ^ key[2i + 1]) + (b << 32 | a)`. The runs are joined as `h = h * G + hash`, from 0. The
fingerprint is `mix(h ^ mix(bytes + 1))`, with the number of bytes before padding.

Of two tensors that differ in one word, those that differ in the first of a pair never agree, others with a chance of
about 2^-32. It is no protection against somebody who looks for two tensors with one fingerprint.

Test vector: float32 [1, 2, 3] has 0x10ef338c31d2b7ed.
"""

import torch
from torch import Tensor

from rankscope.probe.torch_inner import number

RUN_BYTES = 2048

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_RUNS = 128
"""Runs hashed in one call: their products stay in the cache."""


def mixed(value: int) -> int:
    """The finish of splitmix64."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


_KEYS = torch.tensor(
    [_signed(mixed((i + 1) * _GOLDEN & _MASK) >> 32, 32) for i in range(512)], dtype=torch.int32, device="cpu"
)
_POWERS = [pow(_GOLDEN, i, 1 << 64) for i in range(_RUNS + 1)]
_WEIGHTS = torch.tensor([_signed(power, 64) for power in reversed(_POWERS[:_RUNS])], device="cpu")


class Fingerprint:
    """The fingerprint of bytes that are handed over one stretch after the other."""

    def __init__(self) -> None:
        self._hash = 0
        self._size = 0

    def add(self, data: Tensor) -> None:
        """Take the next bytes.

        Args:
            data: uint8[bytes], contiguous, on the host; a multiple of `RUN_BYTES` unless it is the last.
        """
        whole = data.numel() // RUN_BYTES * RUN_BYTES
        if whole:
            # A copy where the data begins between two words: a view of pairs must not.
            is_aligned = data.storage_offset() % 8 == 0 and data.data_ptr() % 8 == 0
            aligned = data[:whole] if is_aligned else data[:whole].clone()
            self._add_runs(aligned.view(torch.int32).view(-1, 512))
        if whole < data.numel():
            self._add_last(data[whole:])
        self._size += data.numel()

    def _add_runs(self, runs: Tensor) -> None:
        for start in range(0, runs.shape[0], _RUNS):
            part = runs[start : start + _RUNS]
            hashes = pair_hashes(part, _KEYS).sum(1)
            amount = part.shape[0]
            joined = int(number((hashes * _WEIGHTS[_RUNS - amount :]).sum()))
            self._hash = (self._hash * _POWERS[amount] + joined) & _MASK

    def _add_last(self, data: Tensor) -> None:
        padded = torch.zeros((data.numel() + 7) // 8 * 8, dtype=torch.uint8, device="cpu")
        padded[: data.numel()] = data
        words = padded.view(torch.int32)
        last = int(number(pair_hashes(words, _KEYS[: words.numel()]).sum()))
        self._hash = (self._hash * _GOLDEN + last) & _MASK

    def join(self, runs: int, last: int, *, size: int) -> None:
        """Take bytes that were hashed elsewhere: the joined hash of their whole runs, and that of the rest."""
        whole, rest = divmod(size, RUN_BYTES)
        self._hash = (self._hash * pow(_GOLDEN, whole, 1 << 64) + runs) & _MASK
        if rest:
            self._hash = (self._hash * _GOLDEN + last) & _MASK
        self._size += size

    @property
    def value(self) -> int:
        """The fingerprint of the bytes so far, 64 bits, unsigned."""
        return mixed(self._hash ^ mixed((self._size + 1) & _MASK))


def weights(runs: int) -> tuple[Tensor, Tensor]:
    """The keys, and what the hashes of so many runs are multiplied by to join them: int32[512] and int64[runs]."""
    powers = [1]
    for _ in range(runs - 1):
        powers.append(powers[-1] * _GOLDEN & _MASK)
    return _KEYS, torch.tensor([_signed(power, 64) for power in reversed(powers)], device="cpu")


def pair_hashes(words: Tensor, keys: Tensor) -> Tensor:
    """The hash of each pair of words: int32[..., 2n] words, int32[2n] keys: int64[..., n]."""
    mixed_words = (words ^ keys).view(torch.int64)
    low = mixed_words & 0xFFFFFFFF
    return low.mul_((mixed_words >> 32).bitwise_and_(0xFFFFFFFF)).add_(words.view(torch.int64))
