"""The table of networks: what it says without torch."""

from __future__ import annotations

import pytest

from gangline.bench.models import MODELS, find
from gangline.errors import UserError


@pytest.mark.parametrize(
    ("model", "batch_size"),
    [
        ("resnet50", 64),
        ("resnet101", 32),
        ("resnet152", 32),
        ("vgg11", 64),
        ("vgg16", 64),
        ("vgg19", 64),
        ("inception3", 32),
        ("alexnet", 512),
        ("googlenet", 32),
        ("lenet", 32),
        ("trivial", 32),
    ],
)
def test_batch_size_is_upstreams_own(model: str, batch_size: int) -> None:
    assert find(model).batch_size == batch_size


def test_unknown_model_is_answered_with_those_that_exist() -> None:
    with pytest.raises(UserError, match="nasnet") as caught:
        find("nasnet")

    assert all(name in caught.value.hint for name in MODELS)
