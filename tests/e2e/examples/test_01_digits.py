"""examples/01-digits: data-parallel training on MPI in several pods. The script alone, and the whole job."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture
def script(examples: Path) -> ModuleType:
    """The training script as a module."""
    pytest.importorskip("mpi4py.MPI", reason="needs an MPI", exc_type=ImportError)
    spec = spec_from_file_location("digits_train", examples / "01-digits" / "train.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_script_is_one_that_a_user_would_write(examples: Path) -> None:
    lines = (examples / "01-digits" / "train.py").read_text().splitlines()

    assert len(lines) < 100
    assert not any("gangline" in line.lower() for line in lines)


def test_data_set_is_complete(script: ModuleType, examples: Path) -> None:
    images, labels, test_images, test_labels = script.load(examples / "01-digits" / "digits.csv.gz")

    assert images.shape == (1437, 64)
    assert test_images.shape == (360, 64)
    assert set(labels) == set(test_labels) == set(range(10))


class Alone:
    """A communicator of one rank out of `size`, which sums with what the other ranks would have sent."""

    rank, size = 0, 1

    def Allreduce(self, *arguments: object) -> None:  # noqa: N802 - the name is MPI's
        pass

    def allgather(self, value: object) -> list[object]:
        return [value]


def test_gradient_is_the_slope_of_the_loss(script: ModuleType) -> None:
    random = np.random.default_rng(3)
    count = sum(int(np.prod(shape)) for shape in script.SHAPES)
    flat, gradient, unused = random.normal(scale=0.3, size=count), np.empty(count), np.empty(count)
    images, labels = random.random((8, 64)), random.integers(0, 10, 8)
    loss = script.backward(script.split(flat), script.split(gradient), images, labels, 8)
    step = 1e-6

    for index in (0, 64 * 128 + 3, 64 * 128 + 128 + 17, count - 1):
        moved = flat.copy()
        moved[index] += step
        moved_loss = script.backward(script.split(moved), script.split(unused), images, labels, 8)
        assert (moved_loss - loss) / step == pytest.approx(gradient[index], abs=1e-5)


def test_training_alone_reaches_the_accuracy(script: ModuleType, examples: Path) -> None:
    data = script.load(examples / "01-digits" / "digits.csv.gz")
    lines: list[str] = []

    _, accuracy = script.train(Alone(), data, 10, lines.append)

    assert accuracy >= 0.97
    assert len(lines) == 10


def test_job_trains_on_four_ranks_in_four_pods_on_two_nodes(gangline, examples: Path) -> None:
    result = gangline("run", "--nodes", "2", "examples/01-digits/mpijob.yaml")

    assert result.returncode == 0, result.stdout
    assert "4 workers + launcher on 2 nodes" in result.stdout
    assert "4 ranks on digits-worker-0, digits-worker-1, digits-worker-2, digits-worker-3" in result.stdout
    accuracy = re.search(r"test accuracy ([\d.]+)%; parameters identical on 4 ranks", result.stdout)
    assert accuracy and float(accuracy[1]) >= 97
    difference = re.search(r"largest difference from one process .*: (\S+)", result.stdout)
    assert difference and float(difference[1]) <= 1e-5
    assert (
        len(re.findall(r"epoch +\d+ +loss [\d.]+ +accuracy +[\d.]+% +[\d,]+ images/s", result.stdout)) == 20
    )


def test_job_says_when_ranks_are_too_few(gangline, examples: Path, tmp_path: Path) -> None:
    text = (examples / "01-digits" / "mpijob.yaml").read_text()
    manifest = tmp_path / "mpijob.yaml"
    manifest.write_text(
        text.replace("name: digits\n", "name: digits-few\n").replace("replicas: 4", "replicas: 2")
    )

    result = gangline("run", "--nodes", "2", str(manifest))

    assert result.returncode == 2, result.stdout
    assert "slots" in result.stdout
