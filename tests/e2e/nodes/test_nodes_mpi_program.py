"""An MPI program on a cluster: its folder and an image with an MPI; no operator, ssh or root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.nodes.test_nodes_program import Program

TRAIN = """
import sys
from parts.ring import comm, rank
hosts = comm.gather(__import__("socket").gethostname())
if rank == 0:
    print("sum", comm.size, sorted(set(hosts)), flush=True)
comm.barrier()
if sys.argv[1:] == [str(rank)]:
    sys.exit(7)
"""


@pytest.fixture(params=["openmpi", "mpich", "intel"])
def program(
    jobs: Any, image: Callable[[str], str], tmp_path: Path, request: pytest.FixtureRequest
) -> Program:
    made = Program(jobs, image(request.param), tmp_path)
    (made.folder / "train.py").write_text(TRAIN)
    (made.folder / "parts" / "ring.py").write_text(
        "from mpi4py import MPI\ncomm = MPI.COMM_WORLD\nrank = comm.rank\n"
    )
    return made


async def test_ranks_are_started_by_the_images_own_mpirun(program: Program) -> None:
    code, out, err = await program("-n", "4", "--nodes", "2", "--", "python3", "train.py")

    assert code == 0, out + err
    assert "sum 4 ['train-0', 'train-1']" in out
    assert "/train succeeded" in err

    code, out, err = await program("-n", "3", "--", "python3", "train.py")

    assert code == 0, out + err
    assert "sum 3 ['train-2-0']" in out


async def test_a_rank_that_fails_gives_the_command_its_code(program: Program) -> None:
    code, out, err = await program("-n", "2", "--nodes", "2", "--", "python3", "train.py", "1")

    assert code == 7, out + err
    assert "rank 1" in err, err


async def test_the_dry_run_is_a_whole_manifest(program: Program) -> None:
    words = ("-n", "4", "--nodes", "2", "--dry-run", "-o", "yaml", "--", "python3", "train.py")
    code, out, _ = await program(*words)

    assert code == 0
    names = [f"{one['kind']}" for one in yaml.safe_load_all(out)]
    assert names.count("Secret") == 3 and names.count("Service") == names.count("Job") == 1
