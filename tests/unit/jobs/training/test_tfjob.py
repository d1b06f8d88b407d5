"""What is a TFJob's own: ``TF_CONFIG``, its end, v1beta2. Expected values are upstream's (1.9.4, 0.5.3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.training.kinds import TFJOB
from gangline.api.training.reading import read_training_job
from gangline.jobs.settings import Settings

from .conftest import TrainingScene, created, deleted

Scene = Callable[..., TrainingScene]
PUBLISHED = Path(__file__).parents[4] / "examples/published/training/v1beta2-tfjob.yaml"


def config(scene: TrainingScene, pod: str) -> str | None:
    found = {one["name"]: one["value"] for one in scene.container(pod).get("env", [])}
    return found.get("TF_CONFIG")


@pytest.mark.parametrize("domain", ["", "tf.training.org", "tf.training.io"])
def test_the_cluster_in_tf_config_to_the_letter(training: Scene, domain: str) -> None:
    end = f".{domain}" if domain else ""
    worker, server = f'"train-worker-0.ns.svc{end}:2222"', f'"train-ps-0.ns.svc{end}:2222"'
    scene = training("TFJob", {"Worker": 1, "PS": 1})
    scene.settings = Settings(cluster_domain=domain)

    assert config(scene, "train-worker-0") == (
        f'{{"cluster":{{"ps":[{server}],"worker":[{worker}]}},'
        '"task":{"type":"worker","index":0},"environment":"cloud"}'
    )
    with_evaluator = training("TFJob", {"Worker": 1, "PS": 1, "Evaluator": 1})
    with_evaluator.settings = Settings(cluster_domain=domain)
    assert config(with_evaluator, "train-evaluator-0") == (
        f'{{"cluster":{{"evaluator":["train-evaluator-0.ns.svc{end}:2222"],"ps":[{server}],"worker":[{worker}]}},'
        '"task":{"type":"evaluator","index":0},"environment":"cloud"}'
    )


@pytest.mark.parametrize(
    ("roles", "pod", "is_told"),
    [
        ({"Worker": 1, "PS": 0}, "train-worker-0", False),
        ({"Worker": 1, "PS": 1}, "train-worker-0", True),
        ({"Worker": 0, "PS": 1}, "train-ps-0", False),
        ({"Chief": 1, "Worker": 1}, "train-chief-0", True),
    ],
)
def test_a_job_of_one_replica_has_no_cluster(
    training: Scene, roles: dict[str, int], pod: str, is_told: bool
) -> None:
    assert (config(training("TFJob", roles), pod) is not None) == is_told


def test_the_first_container_that_trains_alone_is_told(training: Scene) -> None:
    scene = training("TFJob", {"Worker": 2})
    containers = scene.spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    containers.insert(0, {"name": "side", "image": "image"})

    side, main = created(scene.plan(), "Pod")["train-worker-0"]["spec"]["containers"]

    assert "env" not in side
    assert [one["name"] for one in main["env"]] == ["TF_CONFIG"]


def test_the_port_is_that_of_the_container_and_roles_may_differ(training: Scene) -> None:
    scene = training("TFJob", {"Worker": 1, "PS": 1})
    port = {"name": "tfjob-port", "containerPort": 3333}
    scene.spec["tfReplicaSpecs"]["PS"]["template"] = {
        "spec": {"containers": [{"name": "tensorflow", "image": "image", "ports": [port]}]}
    }

    assert '"ps":["train-ps-0.ns.svc:3333"],"worker":["train-worker-0.ns.svc:2222"]' in str(
        config(scene, "train-worker-0")
    )


def test_dynamic_workers_know_themselves_and_the_parameter_servers(training: Scene) -> None:
    scene = training("TFJob", {"Worker": 2, "PS": 2}, enableDynamicWorker=True)

    assert config(scene, "train-worker-1") == (
        '{"cluster":{"worker":{"1":"train-worker-1.ns.svc:2222"},'
        '"ps":["train-ps-0.ns.svc:2222","train-ps-1.ns.svc:2222"]},"task":{"type":"worker","index":1}}'
    )
    assert config(scene, "train-ps-1") == (
        '{"cluster":{"worker":{},"ps":["train-ps-1.ns.svc:2222"]},"task":{"type":"ps","index":1}}'
    )


def test_names_of_roles_are_read_in_any_case(training: Scene) -> None:
    scene = training("TFJob", {"worker": 1, "ps": 1})

    assert set(created(scene.plan(), "Pod")) == {"train-worker-0", "train-ps-0"}


STATUS: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({"Chief": "S", "PS": "R", "Worker": "R"}, {}, "Succeeded"),
    ({"Chief": "R", "PS": "R", "Worker": "R"}, {}, "Running"),
    ({"Chief": "F", "PS": "R", "Worker": "R"}, {}, "Failed"),
    ({"PS": "R", "Worker": "F"}, {}, "Failed"),
    ({"PS": "R", "Worker": "S"}, {}, "Succeeded"),
    ({"PS": "R", "Worker": "R"}, {}, "Running"),
    ({"PS": "RR", "Worker": "RRSS"}, {}, "Running"),
    ({"PS": "RR", "Worker": "RRFF"}, {}, "Failed"),
    ({"PS": "RR", "Worker": "FFSS"}, {}, "Failed"),
    ({"PS": "RR", "Worker": "SRRR"}, {}, "Succeeded"),
    ({"PS": "RR", "Worker": "SRRR"}, {"successPolicy": "AllWorkers"}, "Running"),
    ({"PS": "RR", "Worker": "SSSS"}, {"successPolicy": "AllWorkers"}, "Succeeded"),
    ({"PS": "RR", "Worker": "SRRF"}, {"successPolicy": "AllWorkers"}, "Failed"),
    ({"Chief": "R", "PS": "RR", "Worker": "SSSS"}, {}, "Running"),
    ({"Chief": "R", "PS": "F", "Worker": "RRRR"}, {}, "Failed"),
    ({"Chief": "F", "PS": "RR", "Worker": "SSSS"}, {}, "Failed"),
    ({"Chief": "S", "PS": "RR", "Worker": "FFFF"}, {}, "Succeeded"),
    ({"Worker": "RF"}, {"enableDynamicWorker": True}, "Running"),
    ({"Chief": "R", "Evaluator": "F"}, {}, "Failed"),
    ({"PS": "RR", "Worker": "PPPP"}, {}, ""),
    ({"PS": "R"}, {}, ""),
    ({"PS": "SS", "Worker": "SSSS"}, {}, "Succeeded"),
    ({"Master": "S", "Worker": "F"}, {}, "Succeeded"),
]


@pytest.mark.parametrize(("roles", "spec", "state"), STATUS)
def test_status(training: Scene, roles: dict[str, str], spec: dict[str, Any], state: str) -> None:
    scene = training("TFJob", {role: len(phases) for role, phases in roles.items()}, **spec)
    for role, phases in roles.items():
        scene.pods_of(role, phases)

    scene.settle()

    assert list(scene.conditions().items())[-1] == (state or "Created", "True")
    messages = {
        "Running": "TFJob ns/train is running.",
        "Succeeded": "TFJob ns/train successfully completed.",
    }
    if state in messages:
        assert scene.condition(state) == ("True", f"TFJob{state}", messages[state])


def test_a_failure_says_how_many_of_which_type(training: Scene) -> None:
    scene = training("TFJob", {"PS": 1, "Worker": 4}).pods_of("PS", "R").pods_of("Worker", "RRFF")

    plan = scene.plan()

    message = "TFJob ns/train has failed because 2 Worker replica(s) failed."
    assert [(e.type, e.reason, e.message) for e in plan.events] == [("Normal", "TFJobFailed", message)]
    assert plan.counts == ("created", "failed")


def test_worker_0_that_was_not_alone_in_failing_is_no_success(training: Scene) -> None:
    scene = training("TFJob", {"Worker": 2}).pod("Worker", 0, "Running").pod("Worker", 1, "Failed", code=1)

    scene.settle()

    assert scene.conditions()["Failed"] == "True"


# v1beta2.


def test_v1beta2_has_its_limits_in_the_spec_and_its_own_defaults(training: Scene) -> None:
    scene = training("TFJob", {"PS": 1, "Worker": 2}, version="v1beta2", activeDeadlineSeconds=60)
    scene.carry_out()
    assert scene.plan().requeue_after_s == 60
    scene.pods_of("PS", "R").pods_of("Worker", "SP")

    plan = scene.settle()

    assert scene.condition("Succeeded")[2] == "TFJob train successfully completed."
    # Pending pods survive, as there.
    assert deleted(plan) == ["train-ps-0"]


def test_flat_limits_in_v1_are_passed_over_and_said(training: Scene) -> None:
    scene = training("TFJob", {"Worker": 1}, activeDeadlineSeconds=60)
    scene.carry_out()

    plan = scene.plan()

    assert plan.requeue_after_s is None
    assert "`runPolicy.activeDeadlineSeconds`" in plan.warnings[0].message


def test_v1beta2_keeps_its_codes_labels_and_words(training: Scene) -> None:
    scene = training("TFJob", {"Worker": 2}, version="v1beta2").restart("ExitCode")
    pod = created(scene.plan(), "Pod")["train-worker-0"]
    assert {
        "group-name": "kubeflow.org",
        "tf-job-name": "train",
        "tf-replica-type": "worker",
        "tf-replica-index": "0",
        "tf-job-role": "master",
    }.items() <= pod["metadata"]["labels"].items()
    scene.pod("Worker", 0, "Running").pod("Worker", 1, "Failed", code=137).settle()
    assert scene.condition("Restarting")[2] == "TFJob train is restarting because 1 Worker replica(s) failed."

    scene.pod("Worker", 1, "Failed", code=139, uid="next").settle()

    assert scene.conditions()["Failed"] == "True"


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "Never"])
def test_v1beta2_makes_no_failed_pod_again_without_exit_code(training: Scene, policy: str) -> None:
    scene = training("TFJob", {"Worker": 2}, version="v1beta2").restart(policy).pods_of("Worker", "RF")

    scene.settle()

    message = "TFJob train has failed because 1 Worker replica(s) failed."
    assert scene.condition("Failed") == ("True", "TFJobFailed", message)


def test_v1beta2_tells_every_container_and_leaves_the_evaluator_out(training: Scene) -> None:
    scene = training("TFJob", {"Worker": 1, "Evaluator": 1}, version="v1beta2")
    containers = scene.spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    containers.append({"name": "side", "image": "image"})

    main, side = created(scene.plan(), "Pod")["train-worker-0"]["spec"]["containers"]

    assert main["env"] == side["env"]
    assert '"cluster":{"worker":["train-worker-0.ns.svc:2222"]}' in main["env"][0]["value"]
    assert config(training("TFJob", {"Worker": 1}, version="v1beta2"), "train-worker-0")


def test_the_published_manifest_of_v1beta2_is_read_as_it_is() -> None:
    read = read_training_job(TFJOB, yaml.safe_load(PUBLISHED.read_text()))

    assert read.errors == []
    assert {type_: read.job.count(type_) for type_ in read.job.roles} == {"PS": 1, "Worker": 4}
    assert [warning.path for warning in read.warnings] == [
        f"spec.tfReplicaSpecs[{role}].{field}"
        for role in ("PS", "Worker")
        for field in ("imagePullPolicy", "nodeSelector")
    ]


def test_a_chief_and_a_master_exclude_each_other(training: Scene) -> None:
    scene = training("TFJob", {"Chief": 1, "Master": 1})

    scene.settle()

    assert "must not have more than 1 Chief or Master role" in scene.condition("Failed")[2]


def test_the_reason_of_a_bad_spec_in_v1beta2(training: Scene) -> None:
    scene = training("TFJob", {"Evaluator": 2, "Worker": 1}, version="v1beta2")

    scene.settle()

    assert scene.condition("Failed")[1] == "InvalidTFJobSpec"
