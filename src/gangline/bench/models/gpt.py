"""GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; shapes of table 2.

Weights of embedding and output are one tensor, and there is no dropout, as in today's trainings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a network: layers, width, heads, words of the vocabulary, longest sequence in tokens."""

    layers: int
    width: int
    heads: int
    vocabulary: int = 50304
    sequence: int = 1024


SHAPES = {"gpt2": Shape(12, 768, 12), "small": Shape(4, 256, 4, vocabulary=8192, sequence=256)}
"""124 million parameters (the vocabulary of 50,257 rounded up to a multiple of 64), and 5.3 million."""


class Block(nn.Module):
    """Attention to what came before and a two-layer network, each normalised before and added after."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self._heads = shape.heads
        self.normalise = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens after this block; shape (batch, sequence, width)."""
        batch, count, width = tokens.shape
        parts = self.inputs(self.normalise[0](tokens)).view(batch, count, 3, self._heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        tokens = tokens + self.output(mixed.transpose(1, 2).reshape(batch, count, width))
        result: Tensor = tokens + self.think(self.normalise[1](tokens))
        return result


class Gpt(nn.Module):
    """A network that gives a score to each word as the next one."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.sequence, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.normalise = nn.LayerNorm(shape.width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss of predicting each token from those before; tokens are (batch, sequence + 1)."""
        given, wanted = tokens[:, :-1], tokens[:, 1:]
        found = self.words(given) + self.positions(torch.arange(given.shape[1], device=tokens.device))
        for block in self.blocks:
            found = block(found)
        scores = nn.functional.linear(self.normalise(found), self.words.weight)
        return nn.functional.cross_entropy(scores.flatten(0, 1).float(), wanted.flatten())


def flops_of_token(parameters: int, shape: Shape, sequence: int) -> float:
    """Return the operations of a token, forward and backward: 6 N + 12 layers x width x sequence.

    Source: Chowdhery et al., "PaLM", 2022, appendix B. Embeddings of positions compute nothing.
    """
    computed = parameters - shape.sequence * shape.width
    return 6.0 * computed + 12.0 * shape.layers * shape.width * sequence
