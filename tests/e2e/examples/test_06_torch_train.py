"""examples/06-torch-train: a script on gangline.train in an environment that has only torch."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest


def test_data_set_is_the_one_of_the_first_example(examples: Path) -> None:
    first, sixth = (examples / folder / "digits.csv.gz" for folder in ("01-digits", "06-torch-train"))

    assert first.read_bytes() == sixth.read_bytes()


@pytest.mark.train
def test_training_that_was_killed_ends_as_one_that_was_not(
    gangline, examples, torch_python, tmp_path
) -> None:
    for name in ("train.py", "digits.csv.gz"):
        shutil.copy(examples / "06-torch-train" / name, tmp_path)
    run = ("run", "-n", "2", "--", torch_python, "train.py")

    whole = gangline(*run, "--checkpoints", "whole", cwd=tmp_path)
    killed = gangline(*run, "--kill-at", "170", cwd=tmp_path)
    resumed = gangline(*run, cwd=tmp_path)

    assert whole.returncode == 0, whole.stdout
    assert "2 ranks (torch), gangline on cpu, step 0" in whole.stdout
    assert re.search(r"^step 300/300  .* images/s  loss ", whole.stdout, re.MULTILINE)
    assert "@gangline" not in whole.stdout
    accuracy = re.search(r"accuracy ([\d.]+)%", whole.stdout)
    assert accuracy and float(accuracy[1]) >= 95
    assert killed.returncode != 0
    assert "rank 1" in killed.stdout, killed.stdout
    assert resumed.returncode == 0, resumed.stdout
    assert "step 150" in resumed.stdout
    digest = re.compile(r"digest (\w{16})")
    assert digest.findall(resumed.stdout) == digest.findall(whole.stdout)
    assert len(digest.findall(whole.stdout)) == 1
