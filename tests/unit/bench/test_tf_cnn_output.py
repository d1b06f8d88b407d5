"""The lines of tf_cnn_benchmarks: expected texts are from published logs, tabs included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangline.bench.figures import Speed
from gangline.bench.tf_cnn_output import Header, column_line, is_displayed, step_line, total_lines

PUBLISHED = """\
TensorFlow:  1.14
Model:       resnet101
Dataset:     imagenet (synthetic)
Mode:        training
SingleSess:  False
Batch size:  128 global
             64 per device
Num batches: 100
Num epochs:  0.01
Devices:     ['horovod/gpu:0', 'horovod/gpu:1']
NUMA bind:   False
Data format: NCHW
Optimizer:   sgd
Variables:   horovod
=========="""

HEADER = Header(
    framework="1.14",
    model="resnet101",
    dataset="imagenet (synthetic)",
    mode="training",
    batch_size=128,
    device_batch_size=64,
    num_batches=100,
    epochs=128 * 100 / 1_281_167,
    devices=["horovod/gpu:0", "horovod/gpu:1"],
    data_format="NCHW",
    optimizer="sgd",
    variables="horovod",
)


def test_header_is_the_published_one() -> None:
    assert "\n".join(HEADER.lines()) == PUBLISHED


def test_header_has_upstreams_optional_lines_in_their_places() -> None:
    header = replace(
        HEADER, batch_groups=20, all_reduce="nccl", sync="True", staged="True", horovod_device="gpu"
    )

    lines = list(header.lines())

    assert lines[7] == "             20 batches per prepocessing group"
    assert lines[-6:] == [
        "Variables:   horovod",
        "AllReduce:   nccl",
        "Sync:        True",
        "Staged vars: True",
        "Horovod on:  gpu",
        "==========",
    ]


@pytest.mark.parametrize(
    ("line", "step", "speed", "loss"),
    [
        ("1\timages/sec: 180.2 +/- 0.0 (jitter = 0.0)\t8.108", 1, Speed(180.2, 0, 0), 8.108),
        ("40\timages/sec: 154.4 +/- 0.7 (jitter = 4.0)\t8.280", 40, Speed(154.41, 0.66, 4.02), 8.2804),
        ("100\timages/sec: 1.0 +/- 0.0 (jitter = 0.0)\tnan", 100, Speed(1, 0, 0), float("nan")),
    ],
)
def test_step_line_is_the_published_one(line: str, step: int, speed: Speed, loss: float) -> None:
    assert step_line(step, speed, loss) == line


def test_accuracy_adds_two_columns() -> None:
    assert column_line("total_loss") == "Step\tImg/sec\ttotal_loss"
    assert column_line("base_loss", has_accuracy=True) == (
        "Step\tImg/sec\tbase_loss\ttop_1_accuracy\ttop_5_accuracy"
    )
    assert step_line(1, Speed(2, 0, 0), 0, [0.25, 0.5]).endswith("\t0.000\t0.250\t0.500")


def test_total_stands_between_64_dashes() -> None:
    assert total_lines(308.274) == ["-" * 64, "total images/sec: 308.27", "-" * 64]


def test_first_and_every_tenth_step_are_shown() -> None:
    assert [step for step in range(1, 31) if is_displayed(step, 10)] == [1, 10, 20, 30]
