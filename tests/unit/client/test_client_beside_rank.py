"""A program beside a rank has the folder and the variables of that rank's process, and of no other."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from gangline.client.jobs.beside_rank import beside_rank

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are found in /proc")

SHOW = ("sh", "-c", 'printf "%s|" "$PWD" "$TEXT" "$GIVEN" "$@"; exit 7', "sh", "a  b")


@pytest.fixture
def ranks(tmp_path: Path):
    """Start processes that look like ranks; each is there with its variables when the call returns."""
    with ExitStack() as stack:

        def start(folder: str, **variables: str) -> None:
            place = tmp_path / folder
            place.mkdir()
            environment = {"PATH": os.environ["PATH"], **variables}
            process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=place, env=environment)
            stack.callback(process.communicate)

        yield start


def run(rank: int, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "GIVEN": "the pod's", **variables}
    return subprocess.run(
        beside_rank(rank, SHOW), env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_each_of_two_ranks_of_a_pod_is_met_where_it_runs(ranks, tmp_path, name):
    pod = {"GANGLINE_RANKS_OF": f"default.{tmp_path}/worker-0"}
    for rank in (1, 11):
        ranks(f"of {rank}", **pod, **{name: str(rank)}, TEXT=f"two\nlines of $rank \\{rank} *", PWD="/")

    for rank in (1, 11):
        done = run(rank, **pod)

        assert done.stdout == f"{tmp_path}/of {rank}|two\nlines of $rank \\{rank} *|the pod's|a  b|"
        assert (done.stderr, done.returncode) == ("", 7)


def test_a_rank_of_another_pod_is_not_meant(ranks, tmp_path):
    ranks("other", GANGLINE_RANKS_OF=f"default.{tmp_path}/other", PMI_RANK="1", TEXT="wrong")

    done = run(1, GANGLINE_RANKS_OF=f"default.{tmp_path}/worker-0")

    assert done.stdout == f"{Path.cwd()}||the pod's|a  b|"
    assert done.stderr == "no process of rank 1 runs in this pod: this runs without its variables\n"
    assert done.returncode == 7
