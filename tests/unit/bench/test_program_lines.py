"""The lines of Horovod's synthetic benchmark, of DLLogger and of the MPI example, as published."""

from __future__ import annotations

import json
from datetime import datetime

from gangline.bench import dllogger
from gangline.bench.mpi_pi import SAMPLES_PER_RANK, pi_line
from gangline.bench.nvidia_main import parser as nvidia_parser
from gangline.bench.nvidia_main import steps_of
from gangline.bench.pytorch_synthetic_benchmark import iteration_line, parser, summary_lines

NOON = datetime.fromisoformat("2024-03-03 12:00:00.337358")


def test_horovods_lines() -> None:
    assert iteration_line(0, 150.123, "GPU") == "Iter #0: 150.1 img/sec per GPU"
    # Two iterations: mean 150, population deviation 0.6122, times 1.96 is 1.2; four times that for the total.
    assert summary_lines([150.6122, 149.3878], 4, "GPU") == [
        "Img/sec per GPU: 150.0 +-1.2",
        "Total img/sec on 4 GPU(s): 600.0 +-4.8",
    ]


def test_horovods_flags_have_upstreams_defaults() -> None:
    asked = parser().parse_args([])

    assert (asked.model, asked.batch_size, asked.fp16_allreduce) == ("resnet50", 32, False)
    assert (asked.num_warmup_batches, asked.num_batches_per_iter, asked.num_iters) == (10, 10, 10)
    assert (asked.no_cuda, asked.use_adasum) == (False, False)


def test_dllogger_line() -> None:
    data = {"total_ips": 320.5, "total_loss": 6.9}

    assert dllogger.line(NOON, (0, 51), data) == (
        "DLL 2024-03-03 12:00:00.337358 - (0, 51) total_ips : 320.5  total_loss : 6.9 "
    )
    assert dllogger.line(NOON, (), {"train_throughput": 1.0}).split(" - ")[1] == "() train_throughput : 1.0 "


def test_dllogger_file_holds_one_object_for_each_line() -> None:
    prefix, _, text = dllogger.json_line(NOON, NOON, (), {"train_throughput": 1.5}).partition(" ")

    assert prefix == "DLLL"
    assert json.loads(text)["data"] == {"train_throughput": 1.5}
    assert json.loads(text)["type"] == "LOG"


def test_nvidias_published_command_line_is_understood() -> None:
    words = "--mode=training_benchmark --batch_size=128 --num_iter=90 --iter_unit=epoch --results_dir=/efs"

    asked = nvidia_parser().parse_args(words.split())

    # 1,281,167 images in batches of 16 x 128.
    assert steps_of(asked.num_iter, asked.iter_unit, 16 * asked.batch_size) == 90 * 625


def test_pi_has_sixteen_decimals() -> None:
    assert pi_line(SAMPLES_PER_RANK, 2) == "pi is approximately 2.0000000000000000"
