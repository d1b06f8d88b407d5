"""The two smallest networks of tf_cnn_benchmarks: to try a launch out, to measure all but the computing."""

from __future__ import annotations

from torch import nn


def trivial(classes: int) -> nn.Sequential:
    """Build two hidden layers, of 1 and of 4096 units, on images of 227 pixels."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * 227 * 227, 1),
        nn.ReLU(inplace=True),
        nn.Linear(1, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, classes),
    )


def lenet(classes: int) -> nn.Sequential:
    """Build two convolutions of 5x5 and a hidden layer of 512 units on images of 28 pixels."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(inplace=True),
        nn.Linear(512, classes),
    )
