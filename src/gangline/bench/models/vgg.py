"""VGG: Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014, configurations A, D and E."""

from __future__ import annotations

from torch import nn

_STAGES = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_WIDTHS = (64, 128, 256, 512, 512)


def vgg(classes: int, *, depth: int) -> nn.Sequential:
    """Build a VGG of depth 11, 16 or 19 without batch normalisation."""
    layers: list[nn.Module] = []
    inputs = 3
    for count, width in zip(_STAGES[depth], _WIDTHS, strict=True):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for inputs in (512 * 7 * 7, 4096):
        layers += [nn.Linear(inputs, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    network = nn.Sequential(*layers, nn.Linear(4096, classes))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return network
