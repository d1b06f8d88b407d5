"""GoogLeNet: Szegedy et al., "Going Deeper with Convolutions", 2014, table 1, with batch normalisation.

Without the two auxiliary classifiers, as in tf_cnn_benchmarks. The 5x5 branch is computed with 3x3 kernels,
as in the weights that torchvision publishes.
"""

from __future__ import annotations

from torch import nn

from gangline.bench.models.branches import Branches, Convolution

_TABLE = (
    ((192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64)),
    (
        (480, 192, 96, 208, 16, 48, 64),
        (512, 160, 112, 224, 24, 64, 64),
        (512, 128, 128, 256, 24, 64, 64),
        (512, 112, 144, 288, 32, 64, 64),
        (528, 256, 160, 320, 32, 128, 128),
    ),
    ((832, 256, 160, 320, 32, 128, 128), (832, 384, 192, 384, 48, 128, 128)),
)
"""Per stage and block: inputs, #1x1, #3x3 reduce, #3x3, #5x5 reduce, #5x5, pool projection."""


def _inception(
    inputs: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pool: int
) -> Branches:
    return Branches(
        Convolution(inputs, one, 1),
        nn.Sequential(Convolution(inputs, reduce3, 1), Convolution(reduce3, three, 3, padding=1)),
        nn.Sequential(Convolution(inputs, reduce5, 1), Convolution(reduce5, five, 3, padding=1)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), Convolution(inputs, pool, 1)),
    )


def googlenet(classes: int) -> nn.Sequential:
    """Build GoogLeNet."""
    layers: list[nn.Module] = [
        Convolution(3, 64, 7, 2, 3),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Convolution(64, 64, 1),
        Convolution(64, 192, 3, padding=1),
    ]
    pools = (nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(2, 2))
    for pool, stage in zip(pools, _TABLE, strict=True):
        layers += [pool, *(_inception(*row) for row in stage)]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, classes)
    )
