"""Inception v3: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015.

As in tf_cnn_benchmarks without its auxiliary classifier; ``auxiliary=True`` adds it, and while training the
network then returns both outputs, weighted by the caller.
"""

from __future__ import annotations

from torch import Tensor, nn

from gangline.bench.models.branches import Branches, Convolution


def _average() -> nn.AvgPool2d:
    return nn.AvgPool2d(3, 1, 1)


def _block35(inputs: int, pool: int) -> Branches:
    return Branches(
        Convolution(inputs, 64, 1),
        nn.Sequential(Convolution(inputs, 48, 1), Convolution(48, 64, 5, padding=2)),
        nn.Sequential(
            Convolution(inputs, 64, 1), Convolution(64, 96, 3, padding=1), Convolution(96, 96, 3, padding=1)
        ),
        nn.Sequential(_average(), Convolution(inputs, pool, 1)),
    )


def _reduce35(inputs: int) -> Branches:
    return Branches(
        Convolution(inputs, 384, 3, 2),
        nn.Sequential(
            Convolution(inputs, 64, 1), Convolution(64, 96, 3, padding=1), Convolution(96, 96, 3, 2)
        ),
        nn.MaxPool2d(3, 2),
    )


def _wide(inputs: int, outputs: int) -> Convolution:
    return Convolution(inputs, outputs, (1, 7), padding=(0, 3))


def _high(inputs: int, outputs: int) -> Convolution:
    return Convolution(inputs, outputs, (7, 1), padding=(3, 0))


def _block17(width: int) -> Branches:
    return Branches(
        Convolution(768, 192, 1),
        nn.Sequential(Convolution(768, width, 1), _wide(width, width), _high(width, 192)),
        nn.Sequential(
            Convolution(768, width, 1),
            _high(width, width),
            _wide(width, width),
            _high(width, width),
            _wide(width, 192),
        ),
        nn.Sequential(_average(), Convolution(768, 192, 1)),
    )


def _reduce17() -> Branches:
    return Branches(
        nn.Sequential(Convolution(768, 192, 1), Convolution(192, 320, 3, 2)),
        nn.Sequential(
            Convolution(768, 192, 1), _wide(192, 192), _high(192, 192), Convolution(192, 192, 3, 2)
        ),
        nn.MaxPool2d(3, 2),
    )


def _split(inputs: int) -> Branches:
    return Branches(
        Convolution(inputs, 384, (1, 3), padding=(0, 1)), Convolution(inputs, 384, (3, 1), padding=(1, 0))
    )


def _block8(inputs: int) -> Branches:
    return Branches(
        Convolution(inputs, 320, 1),
        nn.Sequential(Convolution(inputs, 384, 1), _split(384)),
        nn.Sequential(Convolution(inputs, 448, 1), Convolution(448, 384, 3, padding=1), _split(384)),
        nn.Sequential(_average(), Convolution(inputs, 192, 1)),
    )


class Inception3(nn.Module):
    """Inception v3 for images of 299 pixels."""

    def __init__(self, classes: int, *, auxiliary: bool) -> None:
        super().__init__()
        self.begin = nn.Sequential(
            Convolution(3, 32, 3, 2),
            Convolution(32, 32, 3),
            Convolution(32, 64, 3, padding=1),
            nn.MaxPool2d(3, 2),
            Convolution(64, 80, 1),
            Convolution(80, 192, 3),
            nn.MaxPool2d(3, 2),
            _block35(192, 32),
            _block35(256, 64),
            _block35(288, 64),
            _reduce35(288),
            *(_block17(width) for width in (128, 160, 160, 192)),
        )
        self.end = nn.Sequential(
            _reduce17(),
            _block8(1280),
            _block8(2048),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(2048, classes),
        )
        self.auxiliary = None
        if auxiliary:
            self.auxiliary = nn.Sequential(
                nn.AvgPool2d(5, 3),
                Convolution(768, 128, 1),
                Convolution(128, 768, 5),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(768, classes),
            )

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return the scores; while training with the auxiliary classifier also those of it."""
        middle = self.begin(images)
        scores: Tensor = self.end(middle)
        if self.auxiliary is not None and self.training:
            return scores, self.auxiliary(middle)
        return scores


def inception3(classes: int, *, auxiliary: bool = False) -> Inception3:
    """Build Inception v3."""
    return Inception3(classes, auxiliary=auxiliary)
