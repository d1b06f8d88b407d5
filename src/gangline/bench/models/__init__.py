"""The networks that the benchmarks train, in plain torch: names, sizes, and how to build one.

This table imports no torch. Names and batch sizes are those of tf_cnn_benchmarks; `resnet50` is the first
version (stride in the 1x1 convolution), `resnet50_v1.5` the one of torchvision and NVIDIA (stride in the
3x3), `mobilenet` is version 2, as there. `transformer` (ViT-Ti/16) is an addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gangline.errors import UserError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One network of the table.

    Attributes:
        module: module of this package that builds it.
        function: name of its function, called with ``classes`` and ``options``.
        batch_size: images for each device where the user names none.
        image_size: height and width of its images. Unit: pixels.
        options: keywords for the function.
    """

    module: str
    function: str
    batch_size: int
    image_size: int = 224
    options: tuple[tuple[str, Any], ...] = ()


def _resnet(depth: int, batch_size: int, *, first_version: bool = False) -> ModelEntry:
    options = (("depth", depth), ("stride_in_1x1", first_version))
    return ModelEntry("resnet", "resnet", batch_size, options=options)


def _vgg(depth: int) -> ModelEntry:
    return ModelEntry("vgg", "vgg", 64, options=(("depth", depth),))


MODELS: dict[str, ModelEntry] = {
    "trivial": ModelEntry("small", "trivial", 32, image_size=227),
    "lenet": ModelEntry("small", "lenet", 32, image_size=28),
    "alexnet": ModelEntry("alexnet", "alexnet", 512),
    "vgg11": _vgg(11),
    "vgg16": _vgg(16),
    "vgg19": _vgg(19),
    "googlenet": ModelEntry("googlenet", "googlenet", 32),
    "inception3": ModelEntry("inception3", "inception3", 32, image_size=299),
    "mobilenet": ModelEntry("mobilenet", "mobilenet", 32),
    "resnet18": _resnet(18, 64),
    "resnet34": _resnet(34, 64),
    "resnet50": _resnet(50, 64, first_version=True),
    "resnet50_v1.5": _resnet(50, 64),
    "resnet101": _resnet(101, 32, first_version=True),
    "resnet101_v1.5": _resnet(101, 32),
    "resnet152": _resnet(152, 32, first_version=True),
    "resnet152_v1.5": _resnet(152, 32),
    "transformer": ModelEntry("transformer", "transformer", 64),
}


def find(name: str) -> ModelEntry:
    """Return the entry of a network.

    Raises:
        UserError: there is none of that name.
    """
    if name not in MODELS:
        raise UserError(f"model `{name}` is not offered", hint=f"the models are {', '.join(MODELS)}")
    return MODELS[name]


def build(name: str, classes: int = 1000, **options: Any) -> nn.Module:
    """Build a network with fresh weights from torch's random state; needs torch.

    Args:
        name: a key of ``MODELS``.
        classes: number of outputs.
        **options: go before those of the entry, for example ``stride_in_1x1`` of the residual networks.

    Raises:
        UserError: there is none of that name.
    """
    entry = find(name)
    module = import_module(f"{__name__}.{entry.module}")
    network: nn.Module = getattr(module, entry.function)(classes, **(dict(entry.options) | options))
    return network
