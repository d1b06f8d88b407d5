"""Residual networks: He et al., "Deep Residual Learning for Image Recognition", 2015, table 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_BASIC = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
_BOTTLENECK = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution without bias and its batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class ResidualBlock(nn.Module):
    """A residual block: ``body`` beside a shortcut, which is projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, body: nn.Sequential) -> None:
        super().__init__()
        self.body = body
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else _convolution(inputs, outputs, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's activation."""
        return torch.relu_(self.body(images) + self.shortcut(images))


def _basic(inputs: int, width: int, stride: int, _: bool) -> ResidualBlock:
    body = nn.Sequential(
        _convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), _convolution(width, width, 3)
    )
    return ResidualBlock(inputs, width, stride, body)


def _bottleneck(inputs: int, width: int, stride: int, stride_in_1x1: bool) -> ResidualBlock:
    first, second = (stride, 1) if stride_in_1x1 else (1, stride)
    body = nn.Sequential(
        _convolution(inputs, width, 1, first),
        nn.ReLU(inplace=True),
        _convolution(width, width, 3, second),
        nn.ReLU(inplace=True),
        _convolution(width, 4 * width, 1),
    )
    return ResidualBlock(inputs, 4 * width, stride, body)


def resnet(classes: int, *, depth: int, stride_in_1x1: bool = False) -> nn.Sequential:
    """Build a residual network.

    Args:
        classes: number of outputs.
        depth: 18, 34, 50, 101 or 152.
        stride_in_1x1: bottlenecks halve the image in their first convolution, as in the paper, and not in
            the 3x3 one ("v1.5"), which costs 12 % more operations and gives 0.5 % more accuracy.
    """
    make, counts, growth = (
        (_basic, _BASIC[depth], 1) if depth in _BASIC else (_bottleneck, _BOTTLENECK[depth], 4)
    )
    layers: list[nn.Module] = [_convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(counts):
        width = 64 << stage
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            layers.append(make(inputs, width, stride, stride_in_1x1))
            inputs = width * growth
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network
