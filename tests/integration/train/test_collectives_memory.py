"""The memory that ranks of a node share, without torch: right sums, the same bits, nothing left behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from gangline.train.collectives.memory import (
    FOLDER,
    MEMORY_BYTES_MAX,
    PROCESSORS,
    RANKS_MAX,
    Memory,
    memory_bytes,
    remove_leftovers,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in PROCESSORS, reason="Linux x86-64 or aarch64"
)

SCRIPT = """
import os, sys, hashlib, time
from pathlib import Path
import numpy as np
from gangline.train.collectives import memory as module, staged
from gangline.train.peers import PeerLostError
module.PIECE_BYTES = 1 << 16  # several pieces from little data
rank, size, mode = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1]
path = Path(sys.argv[2])
while rank and not path.exists():
    time.sleep(0.01)
while True:
    try:
        memory = module.Memory(path, rank, size, create=rank == 0)
        break
    except (OSError, ValueError):
        time.sleep(0.01)  # not at its size yet
memory.barrier()
memory.unlink()
collectives = staged.StagedCollectives(memory, rank, [[*range(size)]], None)

def add(parts, out):
    np.add(parts[0], parts[1], out=out)
    for part in parts[2:]:
        np.add(out, part, out=out)

def all_reduce(flat):
    collectives.all_reduce("sum", flat, flat, staged.Reduction(flat.dtype, "sum", add, None))

def of(rank, length, kind):
    return np.random.default_rng([rank, length]).standard_normal(length).astype(kind)

if mode == "sums":
    for kind in ("float32", "float64"):
        for length in (0, 1, 15, 16, 17, 1000, 16384, 16385, 100003):
            for _ in range(3):  # boxes are used again at once
                flat = of(rank, length, kind)
                all_reduce(flat)
                want = of(0, length, kind)
                for other in range(1, size):
                    want = want + of(other, length, kind)
                assert np.array_equal(flat, want), (kind, length)
        flat = of(rank, 40000, kind)
        collectives.broadcast("broadcast", flat, 0)
        assert np.array_equal(flat, of(0, 40000, kind))
    print("sums are right")
else:
    while True:
        Path(f"rank-{rank}.runs").touch()
        try:
            all_reduce(np.ones(100000, np.float32))
        except PeerLostError as error:
            print(error)
            break
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def file_for(folder: Path) -> Path:
    return FOLDER / f"gangline-test-{os.getpid()}-{abs(hash(folder))}"


@pytest.mark.parametrize("size", [2, 3, 5])
def test_sums_are_those_of_the_ranks_in_their_order(ranks, numpy_python, script, tmp_path, size) -> None:
    path = file_for(tmp_path)
    ranks.start(numpy_python, script, size, "sums", str(path))

    assert ranks.wait() == [0] * size, [ranks.log(rank) for rank in range(size)]
    assert not path.exists()


def test_rank_that_is_killed_ends_the_wait_of_the_others(ranks, numpy_python, script, tmp_path) -> None:
    path = file_for(tmp_path)
    ranks.start(numpy_python, script, 3, "endless", str(path))
    ranks.wait_for(
        lambda: all((tmp_path / f"rank-{rank}.runs").exists() for rank in range(3)) and not path.exists(),
        "the first sums",
    )
    ranks.processes[1].send_signal(signal.SIGKILL)

    assert ranks.wait() == [0, -signal.SIGKILL, 0]
    assert "rank 1 ended while others waited in sum" in ranks.log(0)
    assert not path.exists()


def test_file_of_a_rank_killed_at_its_start_is_removed_by_the_next_job() -> None:
    left = FOLDER / f"gangline-{os.getuid()}-test{os.getpid()}"
    left.write_bytes(b"left")
    remove_leftovers()
    assert left.exists()  # perhaps of a job that just starts

    os.utime(left, (0, 0))
    remove_leftovers()
    assert not left.exists()


@pytest.mark.parametrize("size", [2, 8, 24, RANKS_MAX])
@pytest.mark.parametrize("rooms", [2, 6])
def test_memory_is_bounded_for_any_number_of_ranks(size: int, rooms: int) -> None:
    assert memory_bytes(size, rooms) <= MEMORY_BYTES_MAX + size * (size + 1) * 64


def test_file_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"x")

    with pytest.raises((OSError, ValueError)):
        Memory(path, 1, 2)
