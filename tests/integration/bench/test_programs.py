"""The benchmark programs, started by their paths with a Python that has torch and no Gangline.

In scope: that every rank says what upstream's ranks say, that figures agree with each other, limits, results,
mistakes. Out of scope: the texts of the lines (tests/unit/bench) and how fast it is (benchmarks/).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gangline.bench.log_figures import read_figures

pytestmark = pytest.mark.train

SMALL = ("--model=lenet", "--batch_size=4", "--num_warmup_batches=1", "--device=cpu")
STEP = re.compile(r"^(\d+)\timages/sec: \d+\.\d \+/- \d+\.\d \(jitter = \d+\.\d\)\t\d+\.\d{3}$")


def test_every_rank_prints_everything_and_one_result_is_written(run_ranks, tmp_path: Path) -> None:
    words = (
        *SMALL,
        "--num_batches=4",
        "--display_every=2",
        "--variable_update=horovod",
        "--use_tf_layers=False",
    )
    ranks = run_ranks("tf_cnn_benchmarks.py", *words, "--json=result.json", ranks=2)

    assert [rank.returncode for rank in ranks] == [0, 0], ranks[0].stderr + ranks[1].stderr
    for rank in ranks:
        lines = rank.stdout.splitlines()
        assert "Batch size:  8 global" in lines
        assert "Devices:     ['horovod/cpu:0', 'horovod/cpu:1']" in lines
        assert [match[1] for line in lines if (match := STEP.match(line))] == ["1", "2", "4"]
        begin = lines.index("Done warm up")
        assert lines[begin - 3 : begin] == [
            "Generating training model",
            "Initializing graph",
            "Running warm up",
        ]
        assert lines[begin + 1] == "Step\tImg/sec\ttotal_loss"
        assert re.fullmatch(r"total images/sec: \d+\.\d\d", lines[-2])
    assert ranks[0].stdout.startswith(
        "Flags without a meaning on torch: --use_tf_layers\nTensorFlow:  none (torch "
    )
    assert ranks[1].stdout.startswith("TensorFlow:  none (torch ")
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["ranks"], result["steps"], result["batch_size"]) == (2, 4, 4)
    figures = read_figures(ranks[0].stdout.splitlines())
    assert figures.images_per_s == pytest.approx(result["images_per_s"], abs=0.01)


def test_limits_are_said_before_the_header_and_after_the_total(run_ranks) -> None:
    (rank,) = run_ranks(
        "tf_cnn_benchmarks.py",
        *("--model=resnet101", "--device=cpu"),
        GANGLINE_BENCH_LIMITS="model=lenet,batch_size=2,num_batches=3,num_warmup_batches=1",
    )

    assert rank.returncode == 0, rank.stderr
    lines = rank.stdout.splitlines()
    said = (
        "Limited by --bench-limits: model resnet101 -> lenet, batch_size 32 -> 2, num_batches 100 -> 3, "
        "num_warmup_batches 10 -> 1"
    )
    assert (lines[0], lines[-1]) == (said, said)
    assert lines[1].startswith("TensorFlow:")
    assert lines[-2] == "-" * 64


def test_forward_only_shows_no_loss_and_two_accuracies(run_ranks) -> None:
    (rank,) = run_ranks("tf_cnn_benchmarks.py", *SMALL, "--num_batches=1", "--forward_only")

    assert rank.returncode == 0, rank.stderr
    assert "Mode:        forward only" in rank.stdout
    assert "Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy" in rank.stdout
    assert re.search(r"^1\timages/sec: .*\t0\.000\t\d\.\d{3}\t\d\.\d{3}$", rank.stdout, re.MULTILINE)


@pytest.mark.parametrize("words", [["--optimizer=momentum"], ["--optimizer=rmsprop"], ["--optimizer=adam"]])
def test_optimizers_train(run_ranks, words: list[str]) -> None:
    (rank,) = run_ranks("tf_cnn_benchmarks.py", *SMALL, "--num_batches=2", *words)

    assert rank.returncode == 0, rank.stderr


def test_horovods_benchmark_prints_on_rank_0_alone(run_ranks) -> None:
    words = ("--model=resnet18", "--batch-size=1", "--num-warmup-batches=0", "--num-batches-per-iter=1")
    ranks = run_ranks("pytorch_synthetic_benchmark.py", *words, "--num-iters=2", "--no-cuda", ranks=2)

    assert [rank.returncode for rank in ranks] == [0, 0], ranks[0].stderr
    assert ranks[1].stdout == ""
    assert re.sub(r"\d+\.\d", "X", ranks[0].stdout).splitlines() == [
        "Model: resnet18",
        "Batch size: 1",
        "Number of CPUs: 2",
        "Running warmup...",
        "Running benchmark...",
        "Iter #0: X img/sec per CPU",
        "Iter #1: X img/sec per CPU",
        "Img/sec per CPU: X +-X",
        "Total img/sec on 2 CPU(s): X +-X",
    ]


def test_nvidias_benchmark_logs_for_dllogger(run_ranks, tmp_path: Path) -> None:
    (rank,) = run_ranks(
        "nvidia_main.py",
        *("--mode=training_benchmark", "--batch_size=128", "--num_iter=90", "--iter_unit=epoch"),
        "--results_dir=efs",
        GANGLINE_BENCH_LIMITS="batch_size=1,num_batches=3,num_warmup_batches=1,model=lenet",
    )

    assert rank.returncode == 0, rank.stderr
    figures = read_figures(rank.stdout.splitlines())
    assert (figures.program, figures.model, figures.steps) == ("nvidia", "lenet", 3)
    last = (tmp_path / "efs" / "log.json").read_text().splitlines()[-1].removeprefix("DLLL ")
    assert json.loads(last)["data"]["train_throughput"] == figures.images_per_s


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num_gpus=8"], "one process computes on one device"),
        (["--model=nasnet"], "model `nasnet` is not offered"),
        (["--eval"], "--eval needs a checkpoint"),
        (["--data_dir=nowhere"], "there is no folder nowhere"),
        (["--json=no/such/folder.json"], "cannot write the result"),
    ],
)
def test_mistake_ends_with_2_before_any_output(run_ranks, words: list[str], message: str) -> None:
    (rank,) = run_ranks("tf_cnn_benchmarks.py", *words)

    assert (rank.returncode, rank.stdout) == (2, "")
    assert message in rank.stderr
