"""GPUs as a user meets them: simulated ones, those of the stand-in NVML, and real ones where there are any.

There is no GPU behind the simulated ones nor behind the stand-in NVML, a library that answers for the driver.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.devices.find import find_gpus

STAND_IN = Path(__file__).parents[2] / "stand_in_nvml"
SHOW = 'echo "rank $RANK: $CUDA_VISIBLE_DEVICES"'

MANIFEST = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: {name}}}
spec:
  slotsPerWorker: 1
  runPolicy: {{cleanPodPolicy: Running}}
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - {{name: l, image: gangline/base, command: [mpirun, -np, "{ranks}", sh, -c, {line!r}]}}
    Worker:
      replicas: {workers}
      template:
        spec:
          terminationGracePeriodSeconds: 1
          containers:
            - name: w
              image: gangline/base
              resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gangline-gpu-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def simulated(home: Path) -> Iterator[Any]:
    """Commands on a cluster of two nodes with eight simulated GPUs each."""
    sys.path.insert(0, str(Path(__file__).parent))
    from conftest import Commands

    commands = Commands(home)
    up = commands("up", "--nodes", "2", "--simulate-gpus", "8", "--gpu-model", "v100-dgx1")
    assert up.returncode == 0, up.stderr
    assert "2 nodes, 8 simulated GPUs on each node (v100-dgx1)" in up.stderr
    yield commands
    commands("down", "--purge")


def manifest(folder: Path, name: str, *, workers: int = 2, line: str = "true") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(MANIFEST.format(name=name, workers=workers, ranks=workers, line=line))
    return path


def test_a_job_of_all_gpus_over_both_nodes(simulated: Any) -> None:
    counts = ["-n", "4", "--nodes", "2", "--gpus-per-rank", "4"]

    done = simulated("run", *counts, "--name", "all", "--", "sh", "-c", SHOW)

    assert done.returncode == 0, done.stderr
    shares = [line.rpartition(": ")[2].split(",") for line in done.stdout.splitlines()]
    assert [len(share) for share in shares] == [4, 4, 4, 4]
    seen = [one for share in shares for one in share]
    assert sorted(seen) == sorted(f"GPU-simulated-node-{node}-{gpu}" for node in (0, 1) for gpu in range(8))
    assert "2 workers + launcher on 2 nodes, 16 simulated GPUs" in done.stderr
    assert "MPIJob default/all succeeded on 16 simulated GPUs after" in done.stderr


def test_who_asks_for_none_sees_none(simulated: Any) -> None:
    line = 'echo "[$CUDA_VISIBLE_DEVICES] $NVIDIA_VISIBLE_DEVICES"'

    isolated = ("run", "--isolated", "--name")
    assert simulated(*isolated, "none", "--", "sh", "-c", line).stdout == "[] void\n"
    own = simulated(*isolated, "own", "-e", "CUDA_VISIBLE_DEVICES=7", "--", "sh", "-c", line)
    assert own.stdout == "[7] void\n"


def test_a_job_of_more_than_all_is_refused_and_nothing_is_created(simulated: Any) -> None:
    done = simulated("run", "-n", "17", "--gpus-per-rank", "1", "--name", "much", "--", "true")

    assert done.returncode == 4
    assert "it asks for 17 GPUs, this cluster has 16 simulated GPUs" in done.stderr
    for way in ("`--fit` shrinks it", "`--simulate-gpus 17 ", "`--context CONTEXT`"):
        assert way in done.stderr
    assert "much" not in simulated("list").stdout


def test_fit_shrinks_the_job_and_not_the_manifest(simulated: Any, tmp_path: Path) -> None:
    path = manifest(tmp_path, "shrunk", workers=4, line="echo $OMPI_COMM_WORLD_SIZE")
    before = path.read_text()

    assert simulated("run", str(path)).returncode == 4
    done = simulated("run", "--fit", str(path))

    assert done.returncode == 0, done.stderr
    assert "ranks 4 -> 2, workers 4 -> 2, the launcher starts 2" in done.stderr
    assert done.stdout.splitlines() == ["2", "2"]
    assert path.read_text() == before


def test_of_two_jobs_the_second_waits_and_says_why(
    simulated: Any, tmp_path: Path, until: Callable[[Callable[[], object], str], None]
) -> None:
    first = manifest(tmp_path, "first", line="while :; do sleep 0.05; done")
    running = simulated.start("run", str(first))
    until(lambda: "RUNNING" in simulated("list").stdout, "the first job")
    waiting = simulated.start("run", str(manifest(tmp_path, "second")))
    reason = "needs 8 simulated nvidia.com/gpu on one node; best node node-0 has 0 free"
    until(lambda: reason in simulated("list", "-o", "wide").stdout, "the reason")

    rows = {line.split()[0]: line for line in simulated("list", "-o", "wide").stdout.splitlines()}
    assert "16 simulated 16 simulated" in " ".join(rows["first"].split())
    assert "PENDING" in rows["second"]
    assert reason in rows["second"]
    found = json.loads(simulated("get", "second", "-o", "json").stdout)
    assert (found["pending"], found["cause"]) == ({"kind": "NoRoom", "scope": "gang"}, None)
    assert "8 simulated, 0 free" in simulated("status").stdout
    simulated("delete", "first")
    running.communicate(timeout=60)
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, err
    assert "second succeeded on 16 simulated GPUs" in err


def test_gpus_stay_with_their_pods_when_the_agent_is_killed(
    simulated: Any, pod_manifest: Callable[..., Path], until: Callable[[Callable[[], object], str], None]
) -> None:
    more = "      resources: {limits: {nvidia.com/gpu: 8}}\n"
    line = "echo $CUDA_VISIBLE_DEVICES; while :; do sleep 0.1; done"
    for name in ("a", "b"):
        simulated("apply", str(pod_manifest(name, line, more=more)))
        until(lambda name=name: simulated("logs", name).stdout, f"pod {name}")
    before = {name: simulated("logs", name).stdout for name in ("a", "b")}
    status = json.loads(simulated("status", "-o", "json").stdout)
    os.kill(status["processes"]["agent"]["pid"], signal.SIGKILL)
    until(
        lambda: (
            json.loads(simulated("status", "-o", "json").stdout)["processes"]["agent"]["pid"]
            not in (0, status["processes"]["agent"]["pid"])
        ),
        "another agent",
    )

    simulated("apply", str(pod_manifest("c", line, more=more)))
    until(lambda: "Insufficient simulated nvidia.com/gpu" in simulated("get", "pod/c").stdout, "c to wait")
    simulated("delete", "pod/a")
    until(lambda: simulated("logs", "c").stdout, "pod c")
    assert simulated("logs", "c").stdout == before["a"] != before["b"]
    for name in ("b", "c"):
        simulated("delete", f"pod/{name}")


def test_the_annotation_chooses(
    simulated: Any, pod_manifest: Callable[..., Path], until: Callable[[Callable[[], object], str], None]
) -> None:
    more = "      resources: {limits: {nvidia.com/gpu: 1}}\n  nodeName: node-1\n"
    path = pod_manifest("chosen", "echo $CUDA_VISIBLE_DEVICES", more=more)
    note = json.dumps({"main": ["GPU-simulated-node-1-5"]})
    path.write_text(
        path.read_text().replace(
            "{name: chosen}", f"{{name: chosen, annotations: {{gangline.dev/gpus: '{note}'}}}}"
        )
    )

    done = simulated("run", str(path))

    assert done.stdout == "GPU-simulated-node-1-5\n"
    assert "Allocated 1 simulated GPU: GPU-simulated-node-1-5" in simulated("get", "chosen", "-e").stdout


def test_the_users_own_choice_is_the_set_that_ranks_share(simulated: Any) -> None:
    line = ["-n", "2", "--gpus-per-rank", "1", "--name", "own-set", "--", "sh", "-c", SHOW]
    simulated.environment["CUDA_VISIBLE_DEVICES"] = "5,6"
    try:
        done = simulated("run", *line)
        refused = simulated("run", "-n", "3", *line[2:])
    finally:
        del simulated.environment["CUDA_VISIBLE_DEVICES"]

    ids = sorted(line.rpartition(": ")[2] for line in done.stdout.splitlines())
    node = ids[0][: -len("-5")]
    assert ids == [f"{node}-5", f"{node}-6"]
    assert refused.returncode == 4
    assert "one of its pods asks 3 GPUs, the largest node has 2 simulated GPUs in your" in refused.stderr
    assert "in your CUDA_VISIBLE_DEVICES=`5,6`" in refused.stderr


def test_a_cluster_that_is_up_does_not_change_its_gpus(simulated: Any) -> None:
    done = simulated("up", "--simulate-gpus", "4")

    assert done.returncode == 2
    assert (
        "is up with 8 simulated GPUs on each node (v100-dgx1), 4 simulated GPUs on each node" in done.stderr
    )
    assert "gangline down" in done.stderr


def test_simulated_is_said_in_every_table(simulated: Any) -> None:
    assert simulated("run", "--gpus-per-rank", "1", "--name", "said", "--", "true").returncode == 0

    report = json.loads(simulated("get", "said", "-o", "json").stdout)
    assert (report["requestGPUs"], report["gpuKind"]) == (1, "simulated")
    assert "1 simulated" in next(
        line for line in simulated("list").stdout.splitlines() if line.startswith("said")
    )
    assert simulated("status").stdout.count("8 simulated") == 2
    assert "GPUs are simulated" in (simulated.home / "default" / "agent.log").read_text()
    if shutil.which("kubectl"):
        config = simulated("kubeconfig", "--path").stdout.strip()
        line = ["kubectl", "--kubeconfig", config, "get", "nodes", "-L", "nvidia.com/gpu.product"]
        table = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        assert table.count("simulated-gpus") == table.count("simulated-v100-dgx1") == 2


# The stand-in NVML: real to Gangline, with device files that lead to /dev/null


@pytest.fixture
def stand_in(fresh: Any, tmp_path: Path) -> Any:
    """Commands on a machine whose driver is the stand-in NVML, with a claim apart from the machine's own."""
    sys.path.insert(0, str(STAND_IN))
    import stand_in_nvml

    if reason := stand_in_nvml.why_not():
        pytest.skip(reason)
    fresh.environment |= {"LD_LIBRARY_PATH": str(stand_in_nvml.build(tmp_path)), "TMPDIR": str(fresh.home)}
    return fresh


def test_real_gpus_are_used_and_said_to_be_real(stand_in: Any) -> None:
    stand_in.environment["STAND_IN_NVML_GPUS"] = "2"
    line = ["-n", "2", "--gpus-per-rank", "1", "--", "sh", "-c", SHOW]

    done = stand_in("run", *line)

    assert done.returncode == 0, done.stderr
    assert "launcher on 1 node, 2 real GPUs" in done.stderr
    assert "succeeded on 2 real GPUs after" in done.stderr
    ids = [f"GPU-5a0d1e5f-0000-4000-8000-{index:012}" for index in range(2)]
    assert sorted(line.rpartition(": ")[2] for line in done.stdout.splitlines()) == ids
    refused = stand_in("run", "-n", "16", *line[2:])
    assert refused.returncode == 4
    assert "it asks for 16 GPUs, this machine has 2" in refused.stderr


def test_real_gpus_are_chosen_among_those_that_the_user_names(stand_in: Any) -> None:
    stand_in.environment["STAND_IN_NVML_GPUS"] = "4"
    ids = [f"GPU-5a0d1e5f-0000-4000-8000-{index:012}" for index in (2, 3)]
    line = ["--gpus-per-rank", "1", "--", "sh", "-c", SHOW]

    for text in ("2,3", ",".join(ids), "2,3,-1,0"):
        stand_in.environment["CUDA_VISIBLE_DEVICES"] = text
        done = stand_in("run", "-n", "2", *line)
        assert sorted(line.rpartition(": ")[2] for line in done.stdout.splitlines()) == ids, done.stderr
    stand_in.environment["CUDA_VISIBLE_DEVICES"] = "3"
    refused = stand_in("run", "-n", "2", *line)
    assert "it asks for 2 GPUs, this machine has 1 in your CUDA_VISIBLE_DEVICES=`3`" in refused.stderr
    stand_in.environment["CUDA_VISIBLE_DEVICES"] = "MIG-0"
    assert "ranks are given whole GPUs" in stand_in("run", "-n", "2", *line).stderr


def test_real_gpus_are_counted_once_on_two_nodes(stand_in: Any) -> None:
    stand_in.environment["STAND_IN_NVML_GPUS"] = "4"

    assert stand_in("up", "--nodes", "2").returncode == 0

    nodes = json.loads(stand_in("status", "-o", "json").stdout)["nodes"]
    assert [(node["gpus"], node["gpuKind"]) for node in nodes] == [(4, "real"), (0, None)]


def test_two_clusters_of_one_machine_do_not_share_them(
    stand_in: Any, until: Callable[[Callable[[], object], str], None]
) -> None:
    stand_in.environment["STAND_IN_NVML_GPUS"] = "1"

    def gpus(cluster: str) -> int:
        found = json.loads(stand_in("status", "--cluster", cluster, "-o", "json").stdout)
        return int(found["nodes"][0]["gpus"])

    try:
        assert stand_in("up").returncode == 0
        assert stand_in("up", "--cluster", "other").returncode == 0
        assert (gpus("default"), gpus("other")) == (1, 0)
        stand_in("down")
        until(lambda: gpus("other") == 1, "the other cluster to take them over")
    finally:
        stand_in("down", "--cluster", "other", "--purge")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a /dev of the test's own")
def test_a_pod_sees_the_device_files_of_its_own_gpus_alone(stand_in: Any, tmp_path: Path) -> None:
    stand_in.environment["STAND_IN_NVML_GPUS"] = "3"
    dev = tmp_path / "dev"
    names = ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm")
    script = (
        f"set -e; mkdir {dev}; mount -t tmpfs dev {dev}; cp -a /dev/. {dev}/ 2>/dev/null || true; "
        f"for n in {' '.join(names)}; do : > {dev}/$n; mount --bind /dev/null {dev}/$n; done; "
        f"mount --rbind {dev} /dev; exec {sys.executable} -m gangline up"
    )
    unshared = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    up = subprocess.run(unshared, env=stand_in.environment, capture_output=True, text=True, check=False)
    if up.returncode:
        pytest.skip(f"no /dev of its own can be made here: {up.stderr[-200:]}")

    def seen(*options: str, name: str) -> list[str]:
        line = ["--isolated", "--name", name, "--", "sh", "-c", "ls /dev | grep nvidia; true"]
        return list(stand_in("run", *options, *line).stdout.split())

    assert seen("--gpus-per-rank", "2", name="two") == ["nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"]
    assert seen(name="none") == []


# A real GPU

REAL = find_gpus().inventory
COUNT_DEVICES = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int(-1)
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print("rank", os.environ["RANK"], "code", code, "devices", count.value, flush=True)
"""


@pytest.mark.skipif(not REAL.gpus, reason="this machine has no NVIDIA GPU")
def test_a_real_gpu_is_seen_by_the_rank_that_asks_and_by_no_other(fresh: Any) -> None:
    (fresh.home / "count.py").write_text(COUNT_DEVICES)

    done = fresh("run", "--gpus-per-rank", "1", "--", sys.executable, "count.py")

    assert done.returncode == 0, done.stderr
    assert "rank 0 code 0 devices 1" in done.stdout
    assert "succeeded on 1 real GPU after" in done.stderr
    assert "devices 1" not in fresh("run", "--name", "none", "--", sys.executable, "count.py").stdout
    asked = len(REAL.gpus) + 1
    refused = fresh("run", "-n", str(asked), "--gpus-per-rank", "1", "--", "true")
    assert refused.returncode == 4
    assert f"it asks for {asked} GPUs, this machine has {len(REAL.gpus)}" in refused.stderr
