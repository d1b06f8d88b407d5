"""How training pods of a TrainJob tell how far they are. Names are Kubeflow Trainer's (2.3.0)."""

from __future__ import annotations

from typing import Any

from gangline.api.training.job import StatusEndpoint
from gangline.jobs.plan import Patch
from gangline.jobs.settings import Settings

from .conftest import created
from .test_trainjob import TrainJobScene
from .test_trainjob_roles import RolesScene, initializer_runtime, mpi_scene

ENDPOINT = StatusEndpoint(url="https://10.0.0.1:8082", authority="PEM")
PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/train/status"


def listened(scene: Any) -> Any:
    scene.settings = Settings(status_endpoint=ENDPOINT)
    return scene


def told(pod: dict[str, Any]) -> dict[str, str]:
    [container] = pod["spec"]["containers"]
    return {one["name"]: one["value"] for one in container.get("env", []) if "KUBEFLOW" in one["name"]}


def test_a_training_pod_is_told_where_and_has_a_token_for_this_job_alone() -> None:
    plan = listened(TrainJobScene()).settle()

    pod = created(plan, "Pod")["train-node-0-0"]
    folder = "/var/run/secrets/kubeflow/trainer"
    assert told(pod) == {
        "KUBEFLOW_TRAINER_SERVER_URL": f"https://10.0.0.1:8082{PATH}",
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{folder}/ca.crt",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{folder}/token",
    }
    [mount] = pod["spec"]["containers"][0]["volumeMounts"]
    assert mount == {"name": "kubeflow-trainer-token", "mountPath": folder, "readOnly": True}
    [volume] = pod["spec"]["volumes"]
    token, authority = volume["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"].endswith("/namespaces/ns/trainjobs/train/status")
    assert authority["configMap"]["name"] == "train-tls-config"
    [config] = created(plan, "ConfigMap").values()
    assert (config["metadata"]["name"], config["data"]) == ("train-tls-config", {"ca.crt": "PEM"})


def test_a_new_certificate_reaches_the_pods_that_run() -> None:
    scene = listened(RolesScene(initializer_runtime()))
    scene.carry_out()
    scene.settings = Settings(status_endpoint=StatusEndpoint(url=ENDPOINT.url, authority="NEW"))
    [patch] = [action for action in scene.plan().actions if isinstance(action, Patch)]

    assert (patch.name, patch.body) == ("train-tls-config", {"data": {"ca.crt": "NEW"}})


def test_nobody_is_told_where_nobody_listens_nor_those_that_do_not_train() -> None:
    pod = created(TrainJobScene().settle(), "Pod")["train-node-0-0"]
    assert not told(pod)
    assert "volumes" not in pod["spec"]

    scene = listened(mpi_scene(2))
    assert not told(created(scene.settle(), "Pod")["train-node-0-0"])
    scene.ready("node", 0)
    assert told(created(scene.plan(), "Pod")["train-launcher-0-0"])
    first = listened(RolesScene(initializer_runtime()))
    assert not told(created(first.settle(), "Pod")["train-dataset-initializer-0-0"])


def test_what_pods_told_stays_when_the_status_is_written() -> None:
    scene = TrainJobScene().node(0, "Running")
    scene.carry_out()
    scene.status["trainerStatus"] = {"progressPercentage": 40}
    assert scene.plan().status is None

    scene.pods.clear()
    scene.node(0, "Succeeded")
    plan = scene.plan()

    assert plan.status
    assert "trainerStatus" not in plan.status_patch
