"""Where the pods and ranks of the published manifests go: two nodes with eight simulated GPUs each.

The images are served by a Python that says what it was told to run, by which rank, and on which GPUs. What
the programs themselves do is in ``test_published_training.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

IMAGES = ("mpioperator/tensorflow-benchmarks", "nvcr.io/nvidia/tensorflow", "horovod/horovod")
Said = Callable[[str], dict[int, tuple[int, str, str, str]]]
NAMESPACE = "managed-machine-learning"


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, saying_python: Path) -> Iterator[Any]:
    images = [word for image in IMAGES for word in ("--image", f"{image}={saying_python}")]
    with start_cluster("--nodes", "2", "--simulate-gpus", "8", *images) as started:
        yield started


def test_job_of_the_guide_has_the_status_that_the_guide_shows(cluster: Any, said: Said) -> None:
    name = cluster.job("v2beta1-benchmarks.yaml")

    status = yaml.safe_load(cluster.kubectl("get", "mpijob", name, "-o", "yaml"))["status"]
    conditions = [(one["type"], one["status"], one["reason"], one["message"]) for one in status["conditions"]]
    assert conditions == [
        ("Created", "True", "MPIJobCreated", f"MPIJob default/{name} is created."),
        ("Running", "False", "MPIJobRunning", f"MPIJob default/{name} is running."),
        ("Succeeded", "True", "MPIJobSucceeded", f"MPIJob default/{name} successfully completed."),
    ]
    assert status["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {}}
    assert status["startTime"] <= status["completionTime"]
    ranks = said(cluster.launcher_log(name))
    program = "scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py"
    command = f"{program} --model=resnet101 --batch_size=64 --variable_update=horovod"
    assert {rank: (size, host, words) for rank, (size, host, _, words) in ranks.items()} == dict.fromkeys(
        (0, 1), (2, f"{name}-worker-0", command)
    )
    assert all(len(gpus.split(",")) == 2 for _, _, gpus, _ in ranks.values())


def test_gang_starts_whole_and_says_that_its_priority_class_is_missing(cluster: Any, said: Said) -> None:
    name = cluster.job("v2beta1-gang.yaml")

    ranks = said(cluster.launcher_log(name))
    assert {(size, host) for size, host, _, _ in ranks.values()} == {
        (9, f"{name}-worker-{worker}") for worker in range(9)
    }
    assert len({gpus for _, _, gpus, _ in ranks.values()}) == 9
    events = cluster.get("events", "--field-selector", "type=Warning")["items"]
    assert "PriorityClass high does not exist and counts as 0" in [event["message"] for event in events]


def test_sixteen_ranks_have_the_gpus_of_two_machines(cluster: Any, said: Said) -> None:
    name = cluster.job("v1alpha2-16-gpus.yaml")

    ranks = said(cluster.launcher_log(name))
    assert {rank: host for rank, (_, host, _, _) in ranks.items()} == {
        rank: f"{name}-worker-{rank // 8}" for rank in range(16)
    }
    assert {len(gpus.split(",")) for _, _, gpus, _ in ranks.values()} == {8}
    assert len({gpus for _, _, gpus, _ in ranks.values()}) == 2
    assert {words.split()[0] for *_, words in ranks.values()} == {"nvidia-examples/resnet50v1.5/main.py"}
    workers = f"training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=worker"
    cluster.kubectl("wait", "--for=delete", "pod", "-l", workers, "--timeout=60s")
    pods = cluster.get("pods", "-l", f"training.kubeflow.org/job-name={name}")["items"]
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"]


def test_two_ranks_gather_what_is_left_over_on_two_machines(cluster: Any, said: Said) -> None:
    """Three GPUs for three pods, where one node has two and the other one."""
    for node, count in (("node-0", 6), ("node-1", 7)):
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(holder(node, count)))
    cluster.kubectl("wait", "--for=condition=Ready", "pod", "-l", "hold=gpus", "--timeout=60s")

    name = cluster.job("v1alpha2-spare-gpus.yaml")

    cluster.kubectl("delete", "pod", "-l", "hold=gpus", "--now")
    ranks = said(cluster.launcher_log(name))
    assert [ranks[rank][1] for rank in (0, 1)] == [f"{name}-worker-0", f"{name}-worker-1"]
    gpus = {gpus for _, _, gpus, _ in ranks.values()}
    assert len(gpus) == 2
    bound = cluster.get("events", "--field-selector", "reason=Scheduled")["items"]
    nodes = [event["message"].split()[-1] for event in bound if f"/{name}-" in event["message"]]
    assert sorted(nodes) == ["node-0", "node-0", "node-1"]


def holder(node: str, gpus: int) -> dict[str, Any]:
    """Return a pod that holds GPUs of a node."""
    container = {
        "name": "main",
        "image": "gangline/base",
        "command": ["sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}
    metadata = {"name": f"holds-{gpus}", "labels": {"hold": "gpus"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_pod_with_an_underscore_in_its_name_is_refused_and_runs_renamed(
    cluster: Any, said: Said, published: Path
) -> None:
    """The order of the refusals and their words are those of a real API server."""
    refused = []
    for there in (["namespace", NAMESPACE], ["serviceaccount", "tensorflow-sa", "-n", NAMESPACE], []):
        done = cluster.try_kubectl("create", "-f", str(published / "pods" / "horovod.yaml"))
        refused.append((done.returncode, done.stderr.strip()))
        if there:
            cluster.kubectl("create", *there)

    assert [code for code, _ in refused] == [1, 1, 1]
    assert refused[0][1].endswith(f'namespaces "{NAMESPACE}" not found')
    assert refused[1][1].endswith(
        'pods "horovod-new_test" is forbidden: error looking up service account '
        f'{NAMESPACE}/tensorflow-sa: serviceaccount "tensorflow-sa" not found'
    )
    assert refused[2][1] == (
        'The Pod "horovod-new_test" is invalid: metadata.name: Invalid value: "horovod-new_test": '
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
        "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )

    text = (published / "pods" / "horovod.yaml").read_text().replace("horovod-new_test", "horovod-new-test")
    cluster.kubectl("create", "-f", "-", stdin=text)

    phase = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", phase, "pod/horovod-new-test", "-n", NAMESPACE, "--timeout=60s")
    log = cluster.kubectl("logs", "horovod-new-test", "-n", NAMESPACE)
    ranks = said(log)
    assert {rank: size for rank, (size, *_) in ranks.items()} == dict.fromkeys(range(8), 8)
    assert {words for *_, words in ranks.values()} == {"pytorch_synthetic_benchmark.py"}
    assert {len(gpus.split(",")) for _, _, gpus, _ in ranks.values()} == {8}


def test_vector_add_pod_holds_a_gpu_and_claims_no_test_of_one_that_is_simulated(cluster: Any) -> None:
    name = cluster.create("pods/cuda-vector-add.yaml")

    phase = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", phase, f"pod/{name}", "--timeout=60s")
    log = cluster.kubectl("logs", name).splitlines()
    assert log[0] == "[Vector addition of 50000 elements]"
    assert log[-2:] == ["Test NOT RUN on a GPU: the sum is right on the CPU", "Done"]
    given = json.loads(cluster.get("pod", name)["metadata"]["annotations"]["gangline.dev/gpus"])
    assert [len(gpus) for gpus in given.values()] == [1]
