"""How ranks end when the launcher says nothing of it, or dies slowly; on this machine alone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.errors import JobFailedError
from gangline.launch.hosts import parse_hosts, plan_ranks
from gangline.launch.mpi import MpiInstallation, find_mpi
from gangline.launch.mpi_start import MpiPlan, run_with_mpi
from gangline.launch.rank_start import RANK_SUPERVISOR, StartOptions
from gangline.launch.remote_host import RemoteShell

LIMIT_S = 30.0

# Open MPI 5.0.11 reports no failure of a rank that ends while others are still being started.
SILENT_MPIRUN = """#!/bin/sh
# stands in for mpirun_wrapper
for rank in 0 1 2; do echo "[1,$rank]<stdout>: gangline-rank-started $rank host"; done
echo '[1,0]<stderr>: @gangline {"kind":"saves-when-asked"}'
echo '[1,1]<stdout>: @gangline {"kind":"rank-ended","rank":1,"code":143}'
printf "[1,2]<stdout>: no more data"; echo '@gangline {"kind":"rank-ended","rank":2,"code":7}'
echo "[1,0]<stdout>: of rank 0"
exit 7
"""

# Its first thread ends at once, its last half a second after the rank; only then is its child handed on.
DIES_SLOWLY = """
import ctypes, os, platform, subprocess, sys, threading, time
rank = os.getppid()
os.setsid()
child = subprocess.Popen(["sleep", "1000"])
def last():
    with open(sys.argv[1], "w") as file:
        file.write(f"{child.pid}\\n")
    while os.getppid() == rank:
        time.sleep(0.01)
    time.sleep(0.5)
    os._exit(0)
threading.Thread(target=last).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit, of this thread
"""


async def test_the_rank_whose_code_a_silent_mpirun_ends_with_is_named(tmp_path: Path) -> None:
    program = tmp_path / "mpirun"
    program.write_text(SILENT_MPIRUN)
    program.chmod(0o755)
    mpi = MpiInstallation("openmpi", "5.0.11", tmp_path, tmp_path, tmp_path)
    options = StartOptions(RemoteShell(), ["true"], dict(os.environ), str(tmp_path))
    shown: list[bytes] = []

    with pytest.raises(JobFailedError) as raised:
        await run_with_mpi(
            MpiPlan(mpi, plan_ranks(parse_hosts("a:1,b:2"), 3), options, ("a", 20001)),
            lambda stream, text: shown.append(text),
        )

    words = (
        "rank 2 of 3 on `b` exited with code 7; all other ranks were ended\n\nits last lines:\n  no more data"
    )
    assert (str(raised.value), raised.value.exit_code) == (words, 7)
    assert b"".join(shown) == b"[2] no more data\nof rank 0\n"


# The shell above a rank's program says how it ended.
IS_KILLED = """
[ $RANK = 1 ] || exec sleep 1000
sleep 1000 &
echo $! > left
kill -9 $PPID $$
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are seen in /proc")
async def test_a_killed_rank_whose_child_holds_its_output_is_named(tmp_path: Path) -> None:
    mpi = find_mpi()
    if mpi.flavour != "openmpi" or mpi.major < 5:
        pytest.skip("only Open MPI 5 waits for such a child")
    options = StartOptions(RemoteShell(), ["sh", "-c", IS_KILLED], dict(os.environ), str(tmp_path))
    plan = MpiPlan(mpi, plan_ranks(parse_hosts("localhost:2"), 2), options, ("localhost", 20001))
    shown: list[bytes] = []

    with pytest.raises(JobFailedError, match=r"^rank 1 of 2 .* was killed by signal 9 \(SIGKILL\)"):
        await asyncio.wait_for(
            run_with_mpi(replace(plan, is_remote=False), lambda stream, text: shown.append(text)), LIMIT_S
        )

    left = (tmp_path / "left").read_text().strip()
    assert f"process {left} (`sleep 1000`) was left behind by a rank".encode() in b"".join(shown)
    assert not Path("/proc", left).exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux hands orphans to a guard")
def test_a_guard_ends_the_children_of_what_dies_slowly(tmp_path: Path) -> None:
    script, told = tmp_path / "slow.py", tmp_path / "child"
    script.write_text(DIES_SLOWLY)
    line = f"{sys.executable} {script} {told} & until [ -s {told} ]; do sleep 0.02; done"
    start = {"start": [{"rank": 0, "argv": ["sh", "-c", line], "env": {}}], "cwd": str(tmp_path)}
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", str(RANK_SUPERVISOR)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )

    assert guard.stdin is not None
    guard.stdin.write(json.dumps(start).encode() + b"\n")
    guard.stdin.flush()

    assert guard.wait(LIMIT_S) == 0
    child = Path("/proc", told.read_text().strip())
    deadline = time.monotonic() + LIMIT_S
    while child.exists():
        assert time.monotonic() < deadline, (child / "stat").read_text()
        time.sleep(0.02)
