"""The token benchmark on two ranks, over both ways of training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.train

PARAMETERS = 8192 * 256 + 256 * 256 + 4 * (12 * 256 * 256 + 13 * 256) + 2 * 256
"""Words, positions, four blocks with biases and norms, the last norm."""


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_result_names_what_it_depends_on(torch_python: str, tmp_path: Path, way: str) -> None:
    size = ["--steps", "2", "--batch-size", "1", "--sequence", "32", "--peak-tflops", "0.1"]
    line = [sys.executable, "-m", "gangline", "bench", "tokens", "-n", "2", "--parallel", way, *size]
    done = subprocess.run(
        [*line, "--python", torch_python], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "tokens.json").read_text())
    assert (result["parameters"], result["parallel"], result["backend"]) == (PARAMETERS, way, "gangline")
    assert f"--parallel={way}" in result["command"]
    assert [one["rank"] for one in result["ranks"]] == [0, 1]
    assert 0 < result["mfu"] < 1
    assert 8.9 < result["loss"] < 9.2  # of 8,192 words that are equally likely: ln 8192 = 9.01
    assert f"total     {result['tokens_per_s']:,.0f} tokens/s" in done.stdout
