"""A character-level language model and the text it learns: the help topics of Python itself."""

from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Windows of the text; the target of each character is the next one.

    Args:
        context: Characters per window.
    """

    def __init__(self, context: int) -> None:
        text = "\n".join(topics[name] for name in sorted(topics))
        alphabet = sorted(set(text))
        code = {character: index for index, character in enumerate(alphabet)}
        self.vocabulary = len(alphabet)
        self._codes = torch.tensor([code[character] for character in text])
        self._context = context

    def __len__(self) -> int:
        return (len(self._codes) - 1) // self._context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """int64[context] twice: the characters of a window, and those that follow each."""
        start = index * self._context
        window = self._codes[start : start + self._context + 1]
        return window[:-1], window[1:]


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """float[batch, time, width] → the same."""
        batch, time, width = x.shape
        heads = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """Attention and a feed-forward part, each normalised before and added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """float[batch, time, width] → the same."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CharModel(nn.Module):
    """A small transformer over characters.

    Args:
        vocabulary: Number of different characters.
        context: Longest window.
        width: Size of a character's vector.
        layers: Number of blocks.
        heads: Attention heads per block.
    """

    def __init__(self, vocabulary: int, *, context: int, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, codes: Tensor) -> Tensor:
        """int64[batch, time] → float[batch * time, vocabulary]: scores of the next character."""
        x = self.tokens(codes) + self.positions(torch.arange(codes.shape[1], device=codes.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)
