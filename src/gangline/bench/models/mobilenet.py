"""MobileNet version 2: Sandler et al., "Inverted Residuals and Linear Bottlenecks", 2018, table 2."""

from __future__ import annotations

from torch import Tensor, nn

_TABLE = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, outputs, repetitions, stride of the first."""


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    ]


class InvertedResidual(nn.Module):
    """Expand, convolve each channel by itself, project without activation."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.body = nn.Sequential(
            *(_convolution(inputs, hidden, 1) if expansion > 1 else []),
            *_convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output."""
        projected: Tensor = self.body(images)
        return images + projected if self.has_shortcut else projected


def mobilenet(classes: int) -> nn.Sequential:
    """Build MobileNet v2 with width 1.0."""
    layers: list[nn.Module] = _convolution(3, 32, 3, 2)
    inputs = 32
    for expansion, outputs, count, stride in _TABLE:
        for index in range(count):
            layers.append(InvertedResidual(inputs, outputs, stride if index == 0 else 1, expansion))
            inputs = outputs
    return nn.Sequential(
        *layers,
        *_convolution(320, 1280, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(1280, classes),
    )
