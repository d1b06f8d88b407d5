"""Both ends of NetApp's flow on two hosts: worker with a remote shell at port 22122, master with `run.py`.

`stand_in_benchmark.py` prints what a benchmark prints; the real one is part of the tests that need torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plain_hosts import PlainHosts

pytestmark = pytest.mark.root

SOURCES = Path(__file__).resolve().parents[3] / "src" / "gangline" / "bench"
STAND_IN = """
import os, socket
rank, size = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
print(f"stand-in: rank {rank} of {size} on {socket.gethostname()}", flush=True)
print("-" * 64 + "\\ntotal images/sec: 308.27\\n" + "-" * 64, flush=True)
"""
SECRET = "a secret of at least thirty-two characters"


@pytest.fixture(params=["our remote shell", "sshd"])
def variables(hosts: PlainHosts, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Start the worker on h2; return the variables of both ends."""
    python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if request.param == "sshd":
        options = {
            "HostKey": hosts.folder / "host_key",
            "AuthorizedKeysFile": hosts.folder / "authorized_keys",
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
        }
        words = " ".join(f"-o{key}={value}" for key, value in options.items())
        both = {"PATH": python, "GANGLINE_SSHD_OPTIONS": f"-f/dev/null {words}"}
    else:
        both = {"PATH": python, "GANGLINE_SHELL_KEY": SECRET}
    worker = subprocess.Popen(
        hosts.command("h2", sys.executable, str(SOURCES / "netapp_worker.py"), "22122"),
        env=dict(os.environ) | both,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"22122\n"
    deadline = time.monotonic() + 60
    while hosts.run("h1", ["bash", "-c", ": < /dev/tcp/h2/22122"]).returncode:
        assert time.monotonic() < deadline
    yield both
    worker.terminate()
    worker.wait(60)


def test_ranks_run_on_both_nodes_and_the_total_is_printed(
    hosts: PlainHosts, variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "stand_in_benchmark.py").write_text(STAND_IN)
    line = [
        *(sys.executable, str(SOURCES / "netapp_run.py"), "--dataset_dir=/mnt/mount_0/imagenet"),
        *("--port=22122", "--num_devices=4", "--dgx_version=dgx1", "--nodes=10.99.0.1,10.99.0.2"),
        *(f"--benchmark={tmp_path}/stand_in_benchmark.py", f"--results_dir={tmp_path}"),
    ]

    done = hosts.run("h1", line, **variables)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "================ Clean Cache !!! ==================\nskipped:" in done.stdout
    assert re.search(r"^mpirun .* -np 4 -H 10.99.0.1:2,10.99.0.2:2 ", done.stdout, re.MULTILINE)
    assert " -x NCCL_SOCKET_IFNAME=eth0 " in done.stdout
    assert " -mca btl_tcp_if_include eth0 " in done.stdout
    precision = "Precision: computed in bf16; asked for fp16, which a CPU only emulates"
    assert done.stdout.endswith(f"{precision}\nTotal images/sec = 308.27\n")
    (results,) = tmp_path.glob("*_resnet50_cpu_4_256_b500_imagenet_nodistort_bf16_*.txt")
    ranks = sorted(line for line in results.read_text().splitlines() if line.startswith("stand-in"))
    assert results.read_text().splitlines()[-1] == precision
    assert ranks == [f"stand-in: rank {rank} of 4 on {'h1' if rank < 2 else 'h2'}" for rank in range(4)]


@pytest.mark.train
def test_the_real_benchmark_reads_two_mounts_on_two_nodes(
    hosts: PlainHosts, variables: dict[str, str], tmp_path: Path
) -> None:
    python = os.environ.get("GANGLINE_TRAIN_PYTHON")
    if not python:
        pytest.skip("GANGLINE_TRAIN_PYTHON names no Python with torch; run `make test-train`")
    mounts = ",".join(str(tmp_path / f"mount_{number}") for number in range(2))
    gangline = str(Path(sys.executable).parent / "gangline")
    make = [gangline, "bench", "make-data", "--images", "64", "--shards", "4", "--mounts", mounts]
    subprocess.run(make, check=True, capture_output=True, timeout=100)
    line = [
        *(python, str(SOURCES / "netapp_run.py"), f"--dataset_dir={tmp_path}/mount_0", "--num_devices=2"),
        *("--nodes=h1,h2", f"--results_dir={tmp_path}"),
    ]
    limits = "model=trivial,batch_size=2,num_batches=2,num_warmup_batches=1"
    environment = str(Path(python).parents[1])  # Open MPI's own Python comes first on the PATH of ranks
    path = f"{Path(python).parent}:{variables['PATH']}"

    done = hosts.run(
        "h1", line, **variables | {"PATH": path, "VIRTUAL_ENV": environment, "GANGLINE_BENCH_LIMITS": limits}
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Limited by --bench-limits: model resnet50 -> trivial" in done.stdout
    assert re.search(r"^Total images/sec = [0-9.]+$", done.stdout, re.MULTILINE)
    (results,) = tmp_path.glob("*_trivial_cpu_2_2_b2_imagenet_nodistort_bf16_*.txt")
    assert "Precision: fp16 is emulated on a CPU; computed in bf16" in results.read_text()
    assert "Devices:     ['horovod/cpu:0', 'horovod/cpu:1']" in results.read_text()


def test_a_failed_training_shows_the_end_of_its_output(
    hosts: PlainHosts, variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "stand_in_benchmark.py").write_text("raise SystemExit('no such data set')")
    line = [
        *(sys.executable, str(SOURCES / "netapp_run.py"), "--dataset_dir=/x", "--num_devices=2"),
        *("--nodes=h1,h2", f"--benchmark={tmp_path}/stand_in_benchmark.py", f"--results_dir={tmp_path}"),
    ]

    done = hosts.run("h1", line, **variables)

    assert done.returncode == 1
    assert "no such data set" in done.stderr


def test_without_secret_and_ssh_server_the_worker_says_what_to_do(hosts: PlainHosts) -> None:
    done = hosts.run(
        "h2", [sys.executable, str(SOURCES / "netapp_worker.py"), "22122"], GANGLINE_SHELL_KEY="short"
    )

    assert done.returncode == 2
    assert "GANGLINE_SHELL_KEY has 5 characters" in done.stderr


def test_a_wrong_secret_runs_nothing(hosts: PlainHosts, tmp_path: Path) -> None:
    """The shell server of h2 has another secret than the one who asks."""
    server = subprocess.Popen(
        hosts.command("h2", sys.executable, "-m", "gangline.launch.shell_server", "22155"),
        env=dict(os.environ) | {"GANGLINE_SHELL_KEY": SECRET},
    )
    shell = str(SOURCES.parent / "launch" / "remote_shell.py")
    ask = [sys.executable, shell, "-p", "22155", "h2", f"touch {tmp_path}/ran"]
    try:
        wrong = hosts.run("h1", ask, GANGLINE_SHELL_KEY="another secret of enough characters, but wrong")
        assert (wrong.returncode, (tmp_path / "ran").exists()) == (255, False)
        right = hosts.run("h1", ask, GANGLINE_SHELL_KEY=SECRET)
        assert (right.returncode, (tmp_path / "ran").exists()) == (0, True)
    finally:
        server.terminate()
        server.wait(60)
