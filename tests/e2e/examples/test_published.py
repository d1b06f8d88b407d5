"""examples/published: the guide's MPIJob as it stands, with our benchmark at the path that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.mark.train
def test_benchmark_of_the_guide_runs_unchanged_on_simulated_gpus(
    gangline, examples: Path, torch_python: str
) -> None:
    environment = Path(torch_python).parents[1]

    result = gangline(
        *(
            "run",
            "--cluster",
            "simulated",
            "--simulate-gpus",
            "2",
            "--image",
            f"mpioperator/tensorflow-benchmarks={environment}",
        ),
        *("--bench-limits", "model=lenet,batch_size=2,num_batches=10,num_warmup_batches=1"),
        str(examples / "published" / "v2beta1-benchmarks.yaml"),
    )

    assert result.returncode == 0, result.stdout
    limits = "model resnet101 -> lenet, batch_size 64 -> 2, num_batches 100 -> 10, num_warmup_batches 10 -> 1"
    assert result.stdout.count(f"Limited by --bench-limits: {limits}") == 2  # of rank 0, before and after
    assert result.stdout.count("Devices:     ['horovod/cpu:0', 'horovod/cpu:1']") == 2
    assert len(re.findall(r"^total images/sec: \d+\.\d\d$", result.stdout, re.MULTILINE)) == 2
    assert "2 simulated GPUs" in result.stdout

    summary = gangline("logs", "--cluster", "simulated", "--summary", "tensorflow-benchmarks")
    gangline("down", "--cluster", "simulated")

    assert summary.returncode == 0, summary.stdout
    assert re.search(r"^total +[\d,.]+ images/s, as one of 2 ranks printed it$", summary.stdout, re.MULTILINE)
    assert f"limited   {limits}" in summary.stdout
