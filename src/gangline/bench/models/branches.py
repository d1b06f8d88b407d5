"""What both Inception networks are made of: normalised convolutions, and branches side by side."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Convolution(nn.Sequential):
    """A convolution without bias, its batch normalisation (epsilon 0.001) and the activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, size, stride, padding, bias=False),
            nn.BatchNorm2d(outputs, eps=0.001),
            nn.ReLU(inplace=True),
        )


class Branches(nn.ModuleList):
    """Modules that read the same images; their outputs are joined along the channels."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(modules)

    def forward(self, images: Tensor) -> Tensor:
        """Return the joined outputs."""
        return torch.cat([branch(images) for branch in self], dim=1)
