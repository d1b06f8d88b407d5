"""ViT-Ti/16: Touvron et al., "Training data-efficient image transformers", 2020, table 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, HEADS, BLOCKS, PATCH, IMAGE = 192, 3, 12, 16, 224


class Attention(nn.Module):
    """Self-attention in which every patch looks at all patches."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mixed tokens; shape (batch, tokens, width)."""
        batch, count, _ = tokens.shape
        parts = self.inputs(tokens).view(batch, count, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        result: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, count, WIDTH))
        return result


class TransformerBlock(nn.Module):
    """Attention and a two-layer network, each normalised before and added after."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.Sequential(nn.LayerNorm(WIDTH, eps=1e-6), Attention())
        self.think = nn.Sequential(
            nn.LayerNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens after this block."""
        tokens = tokens + self.attend(tokens)
        result: Tensor = tokens + self.think(tokens)
        return result


class Transformer(nn.Module):
    """ViT-Ti/16: the class is read from a token of its own."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 1 + (IMAGE // PATCH) ** 2, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(TransformerBlock() for _ in range(BLOCKS)))
        self.normalise = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores."""
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), tokens], dim=1) + self.positions
        scores: Tensor = self.head(self.normalise(self.blocks(tokens))[:, 0])
        return scores


def transformer(classes: int) -> Transformer:
    """Build ViT-Ti/16 for images of 224 pixels."""
    return Transformer(classes)
