"""Threads that submit names whose shapes change, names of their own and one that they have in common."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from launch_ranks import run_ranks

pytestmark = pytest.mark.horovod

SCRIPT = Path(__file__).with_name("threads_script.py")


@pytest.mark.parametrize("size", [2, 4])
def test_every_result_is_of_the_shape_that_was_asked_for(size: int, tmp_path: Path) -> None:
    python = os.environ.get("GANGLINE_TRAIN_PYTHON")
    if not python:
        pytest.skip("GANGLINE_TRAIN_PYTHON is not set: run `make test-horovod`")
    overlay = os.environ.get("GANGLINE_HOROVOD_OVERLAY", "")

    ended = run_ranks(python, [str(SCRIPT), "1", "150"], size, tmp_path, overlay=overlay, limit_s=90)

    assert all("all right" in one.log for one in ended), "\n".join(one.log[-2000:] for one in ended)
