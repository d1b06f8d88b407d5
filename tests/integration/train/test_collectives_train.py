"""The backend "gangline" of torch.distributed: held against gloo, under what builds on it, and in trouble."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.train.conftest import clean_environment, free_port

pytestmark = pytest.mark.train

FOLDER = Path(__file__).parent
MEMORY = Path("/dev/shm")
KINDS = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter"),
    *("reduce_scatter_tensor", "all_to_all_single", "gather", "scatter", "all_reduce_coalesced"),
)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8")
SHAPES = ([1], [3, 5], [0, 2], [17], [1000, 7], [40000], [5, 1, 2])


class ToldRanks:
    """Ranks that do one collective after the other as they are told; see collectives_script.py."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def answers(self, case: dict[str, Any] | None) -> list[str]:
        """Return what the ranks say to a case; at first, that they are ready."""
        if case is not None:
            for process in self._processes:
                _stream(process.stdin).write(json.dumps(case) + "\n")
                _stream(process.stdin).flush()
        return [_stream(process.stdout).readline().strip() for process in self._processes]


@contextmanager
def told_ranks(python: str, size: int, *words: str, **variables: str) -> Iterator[ToldRanks]:
    place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    place |= {"PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}
    with ExitStack() as stack:
        processes = [
            subprocess.Popen(
                [python, str(FOLDER / "collectives_script.py"), *words],
                env=clean_environment(**place, **variables, RANK=str(rank)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        for process in processes:
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield ToldRanks(processes)
        for process in processes:
            _stream(process.stdin).close()
        assert [process.wait(60) for process in processes] == [0] * size


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def cases(size: int) -> st.SearchStrategy[dict[str, Any]]:
    members = st.sets(st.integers(0, size - 1), min_size=1).map(sorted)
    return st.fixed_dictionaries(
        {
            "kind": st.sampled_from(KINDS),
            "dtype": st.sampled_from(DTYPES),
            "op": st.sampled_from(["SUM", "AVG", "MIN", "MAX", "PRODUCT"]),
            "shape": st.sampled_from(SHAPES),
            "group": members,
            "root": st.integers(0, 7),
            "seed": st.integers(0, 99_999),
            "strided": st.booleans(),
            "async": st.booleans(),
        }
    )


@pytest.mark.parametrize(
    ("size", "words", "variables", "count"),
    [
        pytest.param(2, (), {}, 60, id="two ranks"),
        pytest.param(4, (), {}, 150, id="four ranks"),
        pytest.param(8, (), {}, 40, id="eight ranks"),
        pytest.param(4, ("two-nodes",), {}, 150, id="two nodes of two"),
        pytest.param(3, ("two-nodes",), {}, 60, id="nodes of two and one"),
        pytest.param(2, (), {"GANGLINE_SHARED_MEMORY": "0"}, 60, id="over gloo"),
    ],
)
def test_collectives_give_what_gloo_gives(torch_python, size, words, variables, count) -> None:
    with told_ranks(torch_python, size, *words, **variables) as ranks:
        assert ranks.answers(None) == ["ready"] * size

        @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(cases(size))
        def hold(case: dict[str, Any]) -> None:
            assert ranks.answers(case) == ["ok"] * size

        hold()


@pytest.mark.parametrize("how", ["ddp", "fsdp", "zero", "dtensor", "compile", "others"])
@pytest.mark.parametrize("nodes", [(), ("two-nodes",)], ids=["one node", "two nodes"])
def test_what_builds_on_torch_distributed_runs_on_it(ranks, torch_python, how, nodes) -> None:
    ranks.start(torch_python, FOLDER / "frameworks_script.py", 4, how, *nodes)

    assert ranks.wait() == [0] * 4, [ranks.log(rank) for rank in range(4)]
    assert all("right" in ranks.log(rank) for rank in range(4))


@pytest.mark.parametrize("nodes", [(), ("two-nodes",)], ids=["one node", "two nodes"])
def test_killed_rank_is_named_on_all_others_within_five_seconds(ranks, torch_python, nodes) -> None:
    left = set(MEMORY.glob("gangline-*"))
    ranks.start(torch_python, FOLDER / "frameworks_script.py", 4, "lost", *nodes)
    ranks.processes[3].wait(200)
    killed_at = time.time()

    assert ranks.wait() == [0, 0, 0, -signal.SIGKILL], [ranks.log(rank) for rank in range(4)]
    for rank in range(3):
        found = re.search(r"error at (\S+): PeerLostError \((.*)\) ", ranks.log(rank))
        assert found, ranks.log(rank)
        assert "3" in found[2]
        assert float(found[1]) - killed_at < 5
    assert set(MEMORY.glob("gangline-*")) <= left


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("mismatch", r"MismatchError .* came to all_reduce 1, ranks? .*1.* or with another shape"),
        ("late", r"PeerLostError .* rank 2 did not come to all_reduce 1 within 3 s"),
    ],
)
def test_ranks_that_do_not_meet_get_an_error_that_names_them(ranks, torch_python, how, error) -> None:
    ranks.start(torch_python, FOLDER / "frameworks_script.py", 3, how)

    assert ranks.wait() == [0] * 3
    logs = [
        ranks.log(rank) for rank in range(2)
    ]  # whose time was over first tells; the other may hear of its end
    assert any(re.search(error, log) for log in logs), logs


@pytest.fixture
def small_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory with room for less than any group wants."""
    place = tmp_path / "memory"
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=False).returncode
    ):
        pytest.skip("only root mounts memory")
    yield place
    subprocess.run(["umount", place], check=True)


def test_memory_that_is_full_is_told_and_done_without(ranks, torch_python, small_memory) -> None:
    ranks.start(torch_python, FOLDER / "frameworks_script.py", 2, "full", str(small_memory))

    assert ranks.wait() == [0, 0], ranks.log(0)
    assert f"not over shared memory: rank 0: {small_memory} has no room for 6 MiB" in ranks.log(0)
    assert not list(small_memory.iterdir())


LAYOUTS = """
import torch, torch.distributed as dist, gangline.train
with gangline.train.init() as session:
    wide = torch.zeros(3, 50, 2)
    tensors = [torch.ones(3, 50), torch.full((200,), 2.0)]
    if session.rank == 0:
        tensors[0] = wide[..., 0].fill_(1.0)
    dist.all_reduce_coalesced(tensors)
    print("sums", *(one.unique().tolist() for one in tensors), wide[..., 1].unique().tolist(), flush=True)
"""


def test_several_tensors_are_reduced_as_one_whatever_gaps_a_rank_has_in_its_own(
    ranks, torch_python, tmp_path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(LAYOUTS)
    ranks.start(torch_python, script, 2)

    assert ranks.wait() == [0, 0], ranks.log(0)
    assert "sums [2.0] [4.0] [0.0]\n" in ranks.log(0)
    assert "sums [2.0] [4.0] [0.0]\n" in ranks.log(1)
