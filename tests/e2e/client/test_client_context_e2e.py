"""Functions on a cluster of a kubeconfig, which the one-machine cluster plays.

In scope: that a function, modules of its folder and its results travel; what is refused. Out of scope: the
pods of a program on a cluster (tests/e2e/cli/test_cli_cluster_program_e2e.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gangline
from gangline.errors import UserError

IMAGE = "gangline/base"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the caller is in, with a module of its own."""
    (tmp_path / "parts_of_mine.py").write_text("WORD = 'mine'\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kubeconfig(home: Path) -> str:
    """The file of the one-machine cluster, which is up."""
    command = [sys.executable, "-m", "gangline"]
    subprocess.run([*command, "up"], check=True, capture_output=True)
    words = [*command, "kubeconfig", "--path"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def client(kubeconfig: str, folder: Path) -> gangline.Client:
    """A client of the cluster as its kubeconfig names it."""
    return gangline.Client(kubeconfig=kubeconfig, context="gangline", image=IMAGE)


def use_folder(word: str) -> tuple[str, str, str]:
    from parts_of_mine import WORD  # type: ignore[import-not-found]

    return os.environ["RANK"], WORD, word


use_folder.__module__ = "__main__"  # as in a script or a notebook: pickled with what it says


def fail() -> None:
    raise ValueError(os.environ["RANK"])


fail.__module__ = "__main__"


@pytest.mark.parametrize(("ranks", "nodes", "kind"), [(2, 1, "job"), (3, 2, "job"), (2, 2, "mpijob")])
def test_a_function_finds_its_folder_and_its_results_come_back(
    client: gangline.Client, ranks: int, nodes: int, kind: str
) -> None:
    results = client.run(use_folder, ranks, args=("word",), nodes=nodes, kind=kind)

    assert results == [(str(rank), "mine", "word") for rank in range(ranks)]


def test_an_error_has_its_rank_and_traceback(client: gangline.Client) -> None:
    with pytest.raises(gangline.RanksFailedError) as caught:
        client.run(fail, ranks=2, nodes=2)

    error = min(caught.value.errors.items())[1]
    assert (error.kind, error.message) == ("ValueError", str(error.rank))
    assert "in fail" in error.traceback


def test_large_results_arrive_whole(client: gangline.Client) -> None:
    results = client.run(eval("lambda: b'x' * 2_900_000"), ranks=2)

    assert [len(result) for result in results] == [2_900_000] * 2


def test_a_job_on_a_cluster_is_a_job_like_any_other(client: gangline.Client) -> None:
    job = client.start(use_folder, ranks=2, args=("later",), name="later")

    assert job.wait(60, check=True).status == "SUCCEEDED"
    assert client.job("later").results() == [("0", "mine", "later"), ("1", "mine", "later")]
    assert "later" in [one.name for one in client.jobs()]


def test_an_image_is_needed_there_and_refused_here(kubeconfig: str) -> None:
    with pytest.raises(UserError, match="runs in one image"):
        gangline.Client(kubeconfig=kubeconfig, context="gangline").run(fail)
    with pytest.raises(UserError, match="belongs to a cluster of a kubeconfig"):
        gangline.Client().run(fail, image=IMAGE)
