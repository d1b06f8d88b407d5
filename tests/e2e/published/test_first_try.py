"""Published files as they are, on a machine without GPUs: one message with a command, and that command."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "published"
OWN = Path(__file__).parent
FILES = {
    "cuda-vector-add": FOLDER / "pods" / "cuda-vector-add.yaml",
    "dgx-horovod-pod": FOLDER / "pods" / "horovod.yaml",
    "dgx-16gpu": FOLDER / "v1alpha2-16-gpus.yaml",
    "dgx-cutoff": FOLDER / "v1alpha2-spare-gpus.yaml",
    "gang": FOLDER / "v2beta1-gang.yaml",
    "dell-tfjob": FOLDER / "training" / "v1beta2-tfjob.yaml",
    "guide": FOLDER / "v2beta1-benchmarks.yaml",
    "netapp-master": OWN / "netapp" / "master.yaml",
    "netapp-worker": OWN / "netapp" / "worker.yaml",
}
IMAGES = (
    "mpioperator/tensorflow-benchmarks",
    "nvcr.io/nvidia/tensorflow",
    "horovod/horovod",
    "netapp/tensorflow-py2",
)


# One after the other: each starts a cluster, and NetApp's files take ports of the machine.
pytestmark = pytest.mark.xdist_group("published")


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster() as started:
        yield started


@pytest.mark.parametrize("name", FILES)
def test_one_message_names_what_is_missing_and_the_command_that_runs_it(cluster: Any, name: str) -> None:
    ended = cluster.gangline("run", str(FILES[name]))

    assert ended.returncode in (2, 4), ended.stderr
    assert re.search(r"it asks for \d+ GPUs?", ended.stderr.replace("\n    ", " "))
    assert f"gangline run {FILES[name]} --try" in ended.stderr
    assert cluster.get("pods", "-A")["items"] == []


def test_a_job_of_an_unknown_kind_is_told_what_would_work_instead(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "jaxjob.yaml"
    file.write_text("apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: train}\n")

    ended = cluster.gangline("run", str(file))

    assert ended.returncode == 2
    assert "nothing here runs a JAXJob: it needs its own operator" in ended.stderr
    assert "as an MPIJob" in ended.stderr


def test_gpus_are_added_for_the_run_and_taken_away_after(cluster: Any) -> None:
    ended = cluster.gangline("run", str(FILES["cuda-vector-add"]), "--try")

    assert ended.returncode == 0, ended.stderr
    assert "succeeded on 1 simulated GPU" in ended.stderr
    assert "8 simulated GPUs added for it" in ended.stderr.splitlines()[-1]
    assert "Test PASSED" not in ended.stdout
    (node,) = cluster.get("nodes")["items"]
    assert "gangline.dev/added-gpus" not in node["metadata"]["annotations"]


def test_an_environment_that_cannot_be_made_is_told(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal and without --yes nobody has agreed to a download."""
    monkeypatch.setitem(cluster._environment, "PATH", "/usr/sbin:/sbin")
    monkeypatch.delitem(cluster._environment, "VIRTUAL_ENV", raising=False)

    ended = cluster.gangline("run", str(FILES["guide"]), "--try")

    assert ended.returncode == 2
    assert "no Python here has torch, and nobody can be asked" in ended.stderr
    assert "add --yes" in ended.stderr


@pytest.mark.train
@pytest.mark.parametrize("name", [name for name in FILES if name not in ("cuda-vector-add", "netapp-worker")])
def test_the_command_runs_it(cluster: Any, torch_python: str, name: str) -> None:
    lent = [word for image in IMAGES for word in ("--image", f"{image}={Path(torch_python).parents[1]}")]
    cluster.gangline("up", *lent)

    ended = cluster.gangline("run", str(FILES[name]), "--try")

    assert ended.returncode == 0, ended.stderr
    assert re.search(r"succeeded on \d+ simulated GPUs? after", ended.stderr)
    assert "limited to model=lenet" in ended.stderr.splitlines()[-1]
    if name == "dell-tfjob":
        assert "Parameter servers: not used here: workers average their gradients" in ended.stdout
        assert re.search(r"^total images/sec: [0-9.]+$", ended.stdout, re.M)


@pytest.mark.train
def test_the_worker_of_netapp_is_ready_and_keeps_its_gpus_until_it_goes(
    cluster: Any, torch_python: str
) -> None:
    image = f"netapp/tensorflow-py2={Path(torch_python).parents[1]}"

    ended = cluster.gangline("run", str(FILES["netapp-worker"]), "--try", "--image", image)

    assert ended.returncode == 0, ended.stderr
    assert "1 of 1 pod ready, until it is deleted; 8 simulated GPUs added for it" in ended.stderr
    name = "deployment/netapp-tensorflow-multi-imagenet-worker"
    limit_s = time.monotonic() + 60
    while not (log := cluster.kubectl("logs", name)):
        assert time.monotonic() < limit_s
    assert log == "22122\n"
    assert cluster.gangline("delete", name).returncode == 0
