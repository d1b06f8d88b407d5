"""NetApp's article: a worker Deployment and a master Job, on claims that are folders of the user's.

The master's nodes are the two addresses of the cluster's own nodes; the model is a small one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# One after the other: each starts a cluster, and NetApp's files take ports of the machine.
pytestmark = [pytest.mark.train, pytest.mark.xdist_group("published")]

FILES = Path(__file__).parent / "netapp"
WORKER = "netapp-tensorflow-multi-imagenet-worker"
MASTER = "netapp-tensorflow-multi-imagenet-master"
CLAIMS = ("pb-fg-all-iface1", "pb-fg-all-iface2", "tensorflow-results")
RANKS = 16
LIMITS = "model=trivial,batch_size=2,num_batches=2,num_warmup_batches=1"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("storage")
    found = {claim: base / claim for claim in CLAIMS}
    for folder in found.values():
        folder.mkdir()
    mounts = ",".join(str(found[claim] / "dataset" / "imagenet") for claim in CLAIMS[:2])
    make = [sys.executable, "-m", "gangline", "bench", "make-data", "--images", "32", "--shards", "4"]
    subprocess.run([*make, "--mounts", mounts], check=True, capture_output=True, timeout=150)
    return found


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, torch_python: str, folders: dict[str, Path]) -> Iterator[Any]:
    volumes = [word for name, path in folders.items() for word in ("--volume", f"{name}={path}")]
    image = f"netapp/tensorflow-py2={Path(torch_python).parents[1]}"
    options = ("--nodes", "2", "--simulate-gpus", "8", "--bench-limits", LIMITS, "--image", image)
    with start_cluster(*options, *volumes) as started:
        yield started


@pytest.mark.timeout(600)
def test_worker_serves_master_completes_and_deleting_takes_their_pods_along(
    cluster: Any, folders: dict[str, Path]
) -> None:
    cluster.kubectl("create", "-f", str(FILES / "worker.yaml"))
    cluster.kubectl("rollout", "status", f"deployment/{WORKER}", "--timeout=120s")
    assert re.search(rf"^{WORKER} +1/1 +1 +1 +\d+s$", cluster.kubectl("get", "deployments"), re.MULTILINE)
    limit_s = time.monotonic() + 60
    while True:
        (line,) = cluster.kubectl("get", "pods", "-o", "wide", "--no-headers").splitlines()
        name, ready, status, *_ = line.split()
        if (ready, status) == ("1/1", "Running"):
            break
        assert time.monotonic() < limit_s, cluster.kubectl("logs", name, "--previous")
    assert name.rpartition("-")[0].rpartition("-")[0] == WORKER
    limit_s = time.monotonic() + 60
    while not (log := cluster.kubectl("logs", name)):
        assert time.monotonic() < limit_s
    assert log == "22122\n"

    worker = cluster.get("pod", name)
    addresses = [
        one["address"]
        for node in cluster.get("nodes")["items"]
        for one in node["status"]["addresses"]
        if one["type"] == "InternalIP"
    ]
    assert len(set(addresses)) == 2
    assert worker["status"]["podIP"] == worker["status"]["hostIP"]
    assert worker["status"]["hostIP"] in addresses
    master = (FILES / "master.yaml").read_text()
    master = re.sub(r"--nodes=[0-9.,]+", f"--nodes={','.join(addresses)}", master)
    cluster.kubectl("create", "-f", "-", stdin=master)
    assert re.search(rf"^{MASTER} +Running +0/1 ", cluster.kubectl("get", "jobs"), re.MULTILINE)
    waiting = ("wait", "--for=condition=complete", f"job/{MASTER}", "--timeout=160s")
    for _ in range(2):  # a command's limit is too short for 16 ranks on a busy machine with two cores
        cluster.try_kubectl(*waiting)
    cluster.kubectl(*waiting)
    assert re.search(rf"^{MASTER} +Complete +1/1 +\d+m?\d*s", cluster.kubectl("get", "jobs"), re.MULTILINE)
    log = cluster.kubectl("logs", f"job/{MASTER}")
    assert (
        f"mpirun -allow-run-as-root -np {RANKS} -H {','.join(f'{one}:{RANKS // 2}' for one in addresses)} "
        in log
    )
    assert re.search(r"^Total images/sec = [0-9.]+$", log, re.MULTILINE)
    assert list(folders["tensorflow-results"].glob(f"*_trivial_cpu_{RANKS}_2_*.txt"))

    cluster.kubectl("delete", "job", MASTER)
    cluster.kubectl("delete", "deployment", WORKER)
    cluster.try_kubectl("wait", "--for=delete", "pods", "--all", "--timeout=60s")
    assert cluster.get("pods,replicasets")["items"] == []
