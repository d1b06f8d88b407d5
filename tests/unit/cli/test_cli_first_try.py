"""What a file asks for and a laptop lacks, and the file as it can run there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_client import FakeClient

from gangline.api.codec import Document, load_file
from gangline.api.resources import NODES, PERSISTENT_VOLUME_CLAIMS, SECRETS
from gangline.cli.run.refusal import MissingError, refuse
from gangline.client.run.images import image_check, served_by
from gangline.cluster.images.image_map import ImageMap, UserImage
from gangline.cluster.trials import added_gpus, first_try
from gangline.cluster.trials.missing import Absent, Missing, find_missing
from gangline.devices.inventory import ADDED_ANNOTATION, read_added
from gangline.errors import ClusterError

PUBLISHED = Path(__file__).resolve().parents[3] / "examples" / "published"
NETAPP = Path(__file__).resolve().parents[2] / "e2e" / "published" / "netapp"


def node(gpus: int = 0, **annotations: str) -> dict[str, Any]:
    allocatable = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": str(gpus)}
    addresses = [{"type": "InternalIP", "address": "10.213.0.1"}]
    return {
        "metadata": {"name": "node-0", "labels": {"zone": "a"}, "annotations": annotations},
        "status": {"allocatable": allocatable, "addresses": addresses},
    }


def words(documents: list[Document], nodes: list[dict[str, Any]]) -> list[str]:
    return [one.what for one in find_missing(documents, nodes, [], lambda container: "")]


def job(**spec: Any) -> Document:
    template = {"spec": {"containers": [{"name": "main", "image": "gangline/base"}], **spec}}
    metadata = {"name": "train", "namespace": "default"}
    value = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    return Document(value)


def test_gpus_that_no_node_has_are_missing() -> None:
    documents = load_file(PUBLISHED / "v1alpha2-16-gpus.yaml")

    assert words(documents, [node()]) == [
        "MPIJob `16gpu-tensorflow-benchmark-imagenet`: it asks for 16 GPUs in 2 pods of 8, "
        "this machine has none"
    ]
    assert words(documents, [node(8), node(8)]) == []


def test_gpus_that_are_there_for_another_run_do_not_count() -> None:
    documents = load_file(PUBLISHED / "pods" / "cuda-vector-add.yaml")
    other = node(8, **{ADDED_ANNOTATION: json.dumps({"Pod/default/other": 8})})

    assert words(documents, [node(8)]) == []
    assert words(documents, [other]) == ["Pod `cuda-vector-add`: it asks for 1 GPU, this machine has none"]


def test_labels_that_no_node_has_and_addresses_of_other_nodes_are_missing() -> None:
    assert words([job(nodeSelector={"nvidia": "t4"})], [node()]) == [
        "Job `train`: no node has the labels nvidia=t4"
    ]
    assert words([job(nodeSelector={"zone": "a"})], [node()]) == []
    assert "no node has the address 10.61.218.152 or 10.61.218.154" in words(
        load_file(NETAPP / "master.yaml"), [node(8)]
    )


def test_all_is_said_in_one_message_with_the_command_that_runs_it_anyway() -> None:
    missing = [Missing("no GPU", "simulated GPUs"), Missing("no claim", "empty volume claims")]

    with pytest.raises(MissingError) as caught:
        refuse(missing, "gangline run job.yaml --try", is_tried=False)

    assert "2 things missing\n  - no GPU\n  - no claim" in caught.value.message
    assert caught.value.hint.splitlines()[0] == "gangline run job.yaml --try"
    refuse(missing, "gangline run job.yaml --try", is_tried=True)  # all of it has a remedy


def test_what_has_no_remedy_is_refused_when_it_is_tried_too() -> None:
    absent = [
        Absent(SECRETS, "default", "token", ("key",)),
        Absent(PERSISTENT_VOLUME_CLAIMS, "default", "data"),
    ]
    missing = find_missing([job()], [node()], absent, lambda container: "")

    with pytest.raises(MissingError) as caught:
        refuse(missing, "gangline run job.yaml --try", is_tried=True)

    assert "secret `token` with `key` is not there" in caught.value.message
    assert "volume claim" not in caught.value.message


def test_netapps_master_is_given_its_own_address_and_a_rank_for_each_node() -> None:
    (master,) = load_file(NETAPP / "master.yaml")

    value = first_try.adapted(master, [node()]).value

    container = value["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][-1] == "--nodes=$(HOST_IP),$(HOST_IP)"
    assert "--num_devices=2" in container["command"]
    assert container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "status.hostIP"
    assert "2 ranks on this machine's own address" in first_try.note_of(value)
    assert master.value == load_file(NETAPP / "master.yaml")[0].value


def test_workers_have_the_limits_too_for_the_ranks_run_there() -> None:
    (document,) = load_file(PUBLISHED / "v2beta1-benchmarks.yaml")

    value = first_try.adapted(document, [node()]).value

    for role in ("Launcher", "Worker"):
        container = value["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]["containers"][0]
        assert {"name": "GANGLINE_BENCH_LIMITS", "value": first_try.LIMITS} in container["env"]


def test_a_pod_whose_name_no_cluster_takes_gets_another() -> None:
    (pod,) = load_file(PUBLISHED / "pods" / "horovod.yaml")

    value = first_try.adapted(pod, [node()]).value

    assert value["metadata"]["name"] == "horovod-new-test"
    assert first_try.note_of(value).startswith("named horovod-new-test")


def test_requests_beyond_the_machine_go_and_those_within_stay() -> None:
    def asking(cores: str) -> dict[str, Any]:
        container = {"name": "main", "image": "gangline/base", "resources": {"requests": {"cpu": cores}}}
        value = first_try.adapted(job(containers=[container]), [node()]).value
        found: dict[str, Any] = value["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
        return found

    assert asking("64") == {}
    assert asking("1") == {"cpu": "1"}


def test_the_name_that_an_image_is_lent_by_is_the_one_that_finds_it(tmp_path: Path) -> None:
    image = "nvcr.io/nvidia/tensorflow:19.10-py3"
    container = {"image": image, "command": ["python", "/opt/benchmarks/tf_cnn_benchmarks.py"]}
    documents = [job(containers=[container | {"name": "main"}])]

    (name,) = first_try.torch_images(documents)

    known = ImageMap({name: UserImage("venv", str(tmp_path))})
    assert name == "nvcr.io/nvidia/tensorflow"
    assert served_by(image, known) == f"virtual environment {tmp_path}"
    problem = image_check(ImageMap())(container)
    assert not problem or f"--image {name}=FOLDER" in problem


def test_what_a_node_shows_for_runs_is_read_whatever_is_written_there() -> None:
    assert read_added('{"Job/default/a": 8, "Pod/x/b": 1}') == {"Job/default/a": 8, "Pod/x/b": 1}
    assert read_added("") == read_added("[]") == read_added('{"a": "b"}') == read_added("{") == {}


@pytest.mark.parametrize("failure", [KeyboardInterrupt, None])
def test_gpus_are_taken_away_when_the_run_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, failure: type[BaseException] | None
) -> None:
    """Ctrl-C while they are waited for, and nodes that never show them."""
    client = FakeClient()
    bare = node()
    bare["status"]["allocatable"].pop("nvidia.com/gpu")
    asyncio.run(client.create(NODES, bare))
    cluster: Any = SimpleNamespace(call=lambda ask: asyncio.run(ask(client)))

    def wait(seconds: float) -> None:
        (shown,) = cluster.call(lambda client: client.list(NODES)).items
        assert added_gpus.added(shown) == {"Job/default/train": 8}
        if failure is not None:
            raise failure

    monkeypatch.setattr(added_gpus.time, "sleep", wait)
    monkeypatch.setattr(added_gpus, "PUBLISH_TIMEOUT_S", 0.05)
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    obj = job().value | {"spec": {"template": template}}

    with pytest.raises(failure or ClusterError):
        added_gpus.add_gpus(cluster, [obj])

    (left,) = cluster.call(lambda client: client.list(NODES)).items
    assert added_gpus.added(left) == {}
