"""The networks, built by torch in its own environment: sizes as published, and that they can be trained."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.train

SOURCES = Path(__file__).resolve().parents[3] / "src"

# torchvision's documentation of its weights ("num_params"); timm's results for the transformer (table 1 of
# the DeiT paper has 5 M) and for Inception without its auxiliary classifier.
PUBLISHED = {
    "alexnet": 61_100_840,
    "googlenet": 6_624_904,
    "inception3": 23_834_568,
    "mobilenet": 3_504_872,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet50_v1.5": 25_557_032,
    "resnet101": 44_549_160,
    "resnet101_v1.5": 44_549_160,
    "resnet152": 60_192_808,
    "resnet152_v1.5": 60_192_808,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "transformer": 5_717_416,
    "inception3 with auxiliary": 27_161_264,
    # No weights are published for these two: sums over their layers.
    "trivial": (3 * 227 * 227 + 1) + 2 * 4096 + (4096 * 1000 + 1000),
    "lenet": (3 * 25 * 32 + 32) + (32 * 25 * 64 + 64) + (64 * 49 * 512 + 512) + (512 * 1000 + 1000),
}

COUNT = """
import json, torch
from gangline.bench.models import MODELS, build
def size(*words, **options):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(*words, **options).parameters())
counts = {name: size(name) for name in MODELS}
print(json.dumps(counts | {"inception3 with auxiliary": size("inception3", auxiliary=True)}))
"""

TRAIN = """
import json, torch
from gangline.bench.models import MODELS, build
shapes = {}
for name, entry in MODELS.items():
    with torch.device("meta"):
        images = torch.empty(2, 3, entry.image_size, entry.image_size)
        scores = build(name, classes=7)(images)
        scores.sum().backward()
    shapes[name] = list(scores.shape)
print(json.dumps(shapes))
"""


def run(python: str, program: str) -> dict[str, object]:
    result = subprocess.run(
        [python, "-c", program],
        env={"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


def test_parameter_counts_are_the_published_ones(torch_python: str) -> None:
    assert run(torch_python, COUNT) == PUBLISHED


def test_every_network_takes_its_images_and_gives_a_gradient(torch_python: str) -> None:
    shapes = run(torch_python, TRAIN)

    assert {name: shape for name, shape in shapes.items() if shape != [2, 7]} == {}
