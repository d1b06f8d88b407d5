"""TrainJob: what it and its runtime make together. Expected values are Kubeflow Trainer's (2.3.0)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.api.mpijob import JobMeta
from gangline.api.trainer.bundled import bundled_runtimes
from gangline.api.trainer.job import Runtime
from gangline.api.trainer.reading import ReadTrainJob, read_observed_train_job, read_train_job
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Plan
from gangline.jobs.settings import Settings
from gangline.jobs.training import trainjob
from gangline.jobs.training.rules import TRAINJOB_RULES

from .conftest import UID, TrainingScene, created, deleted


class TrainJobScene(TrainingScene):
    """A TrainJob, its runtime and its pods."""

    def __init__(self, runtime: dict[str, Any] | None = None, **spec: Any) -> None:
        super().__init__("PyTorchJob", {})
        self.rules = TRAINJOB_RULES
        self.spec = {"runtimeRef": {"name": "torch-distributed"}, **spec}
        self.runtime = runtime or bundled_runtimes()[0]["spec"]

    def node(self, index: int, phase: str, **more: Any) -> TrainJobScene:
        """Add a pod of the role node."""
        self.pod("node", index, phase, **more)
        return self

    def plan(self) -> Plan:
        """Return the plan of now."""
        read = read_observed(self)
        name = "torch-distributed"
        runtime = msgspec.convert(
            {"kind": "ClusterTrainingRuntime", "metadata": {"name": name}, "spec": self.runtime}, Runtime
        )
        observed = ObservedChildren(
            services=self.services,
            pods=self.pods,
            pod_groups=self.pod_groups,
            runtimes={("ClusterTrainingRuntime", name): runtime},
        )
        return trainjob.reconcile(read, observed, self.now, raw_status=self.status, settings=self.settings)


def read_observed(scene: TrainJobScene) -> ReadTrainJob:
    """Return the job of a scene as a cache holds it."""
    meta = msgspec.convert(
        {"name": "train", "namespace": "ns", "uid": UID, "annotations": scene.annotations}, JobMeta
    )
    return read_observed_train_job(meta, scene.spec, scene.status)


def runtime_called(name: str) -> dict[str, Any]:
    """Return the spec of a runtime that comes with Gangline."""
    [spec] = [one["spec"] for one in bundled_runtimes() if one["metadata"]["name"] == name]
    return dict(spec)


def runtime(job: dict[str, Any] | None = None, **jobset: Any) -> dict[str, Any]:
    """Return the spec of a runtime with something changed in its JobSet."""
    spec = msgspec.json.decode(msgspec.json.encode(bundled_runtimes()[0]["spec"]))
    spec["template"]["spec"] |= jobset
    spec["template"]["spec"]["replicatedJobs"][0] |= job or {}
    return dict(spec)


def test_pods_are_named_and_found_as_a_jobsets_and_are_told_their_place() -> None:
    scene = TrainJobScene(trainer={"numNodes": 2, "numProcPerNode": 4, "image": "mine", "command": ["go"]})
    pods = created(scene.settle(), "Pod")

    assert list(pods) == ["train-node-0-0", "train-node-0-1"]
    pod = pods["train-node-0-1"]
    labels = pod["metadata"]["labels"]
    assert labels["jobset.sigs.k8s.io/jobset-name"] == "train"
    assert labels["jobset.sigs.k8s.io/replicatedjob-name"] == "node"
    assert labels["batch.kubernetes.io/job-completion-index"] == "1"
    assert labels["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-node-0-1", "train")
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    [container] = pod["spec"]["containers"]
    assert (container["image"], container["command"]) == ("mine", ["go"])
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "train-node-0-0.train",
        "PET_MASTER_PORT": "29500",
    }
    assert list(created(scene.plan(), "Service")) == ["train"]


@pytest.mark.parametrize(
    ("resources", "processes"),
    [
        ({}, "1"),
        ({"requests": {"cpu": "3"}}, "3"),
        ({"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}, "4"),
        ({"limits": {"cpu": "4", "nvidia.com/gpu": "2"}}, "auto"),
    ],
)
def test_processes_are_the_cpus_where_there_are_no_gpus(resources: dict[str, Any], processes: str) -> None:
    scene = TrainJobScene(trainer={"resourcesPerNode": resources})
    pod = created(scene.settle(), "Pod")["train-node-0-0"]

    env = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
    assert env["PET_NPROC_PER_NODE"] == processes


def test_there_is_no_condition_while_it_runs() -> None:
    """The SDK takes a job for running only while it has none."""
    scene = TrainJobScene(trainer={"numNodes": 2})
    scene.carry_out()
    scene.pods.clear()
    scene.node(0, "Running").node(1, "Running")
    scene.carry_out()

    assert "conditions" not in scene.status
    assert scene.status["jobsStatus"] == [
        {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    ]


def test_it_is_complete_when_every_pod_has_succeeded_and_stays_so() -> None:
    scene = TrainJobScene(trainer={"numNodes": 2}).node(0, "Succeeded").node(1, "Succeeded")
    scene.carry_out()

    assert scene.condition("Complete") == ("True", "AllJobsCompleted", "jobset completed successfully")
    assert scene.status["jobsStatus"][0]["succeeded"] == 1
    scene.pods.clear()
    assert not created(scene.plan(), "Pod")
    assert scene.plan().status is None


def test_a_suspended_job_holds_no_pods_and_says_so_as_upstream() -> None:
    scene = TrainJobScene(suspend=True).node(0, "Running")
    plan = scene.settle()

    assert deleted(plan) == ["train-node-0"]
    assert scene.condition("Suspended")[:2] == ("True", "Suspended")
    scene.spec["suspend"] = False
    scene.pods.clear()
    assert list(created(scene.settle(), "Pod")) == ["train-node-0-0"]
    assert scene.condition("Suspended")[:2] == ("False", "Resumed")
    assert scene.plan().status is None


def test_a_job_that_ran_too_long_fails_by_its_deadline() -> None:
    scene = TrainJobScene(activeDeadlineSeconds=60).node(0, "Running")
    scene.carry_out()
    scene.later(61)
    scene.carry_out()

    assert scene.condition("Failed")[:2] == ("True", "DeadlineExceeded")


def test_the_deadline_counts_anew_when_a_job_goes_on() -> None:
    scene = TrainJobScene(activeDeadlineSeconds=60).node(0, "Running")
    scene.carry_out()
    scene.later(50).spec["suspend"] = True
    scene.carry_out()
    scene.later(50).spec["suspend"] = False
    scene.carry_out()

    scene.later(59).carry_out()
    assert "Failed" not in scene.conditions()
    scene.later(1).carry_out()
    assert scene.condition("Failed")[1] == "DeadlineExceeded"


@pytest.mark.parametrize(
    ("manager", "is_ours"),
    [("trainer.kubeflow.org/trainjob-controller", True), ("kueue.x-k8s.io/multikueue", False)],
)
def test_a_job_that_another_manages_is_left_alone(manager: str, is_ours: bool) -> None:
    plan = TrainJobScene(managedBy=manager).settle()

    assert bool(created(plan, "Pod")) is is_ours
    assert plan.is_empty is not is_ours


def test_restarts_of_a_jobset_start_all_pods_again_so_often() -> None:
    scene = TrainJobScene(runtime(failurePolicy={"maxRestarts": 1}), trainer={"numNodes": 2})
    scene.node(0, "Running").node(1, "Failed", code=1)
    first = scene.settle()

    assert deleted(first) == ["train-node-0", "train-node-1"]
    assert (scene.status["restarts"], "conditions" in scene.status) == (1, False)
    scene.pods.clear()
    scene.settle()
    scene.node(0, "Running").node(1, "Failed", code=1, uid="again")
    scene.carry_out()
    assert scene.condition("Failed")[:2] == ("True", "FailedJobs")


def test_a_runtime_is_changed_for_one_job() -> None:
    patch = {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "spec": {
                                "template": {
                                    "spec": {
                                        "nodeSelector": {"zone": "a"},
                                        "containers": [
                                            {"name": "node", "volumeMounts": [{"mountPath": "/d"}]}
                                        ],
                                    }
                                }
                            }
                        },
                    }
                ]
            }
        }
    }
    scene = TrainJobScene(runtimePatches=[{"manager": "me", "trainingRuntimeSpec": patch}])
    pod = created(scene.settle(), "Pod")["train-node-0-0"]

    assert pod["spec"]["nodeSelector"] == {"zone": "a"}
    [container] = pod["spec"]["containers"]
    assert container["volumeMounts"] == [{"mountPath": "/d"}]
    assert container["image"].startswith("pytorch/pytorch:")


def test_a_gangs_policy_says_how_long_it_waits_and_what_nobody_does_is_told() -> None:
    def timeout(**policy: Any) -> tuple[object, list[str]]:
        scene = TrainJobScene(runtime() | {"podGroupPolicy": policy})
        scene.settings = Settings(gang_scheduling="scheduler-plugins-scheduler")
        plan = scene.settle()
        [group] = created(plan, "PodGroup").values()
        return group["spec"]["scheduleTimeoutSeconds"], [one.message for one in plan.warnings]

    assert timeout(coscheduling={}) == (60, [])
    assert timeout(coscheduling={"scheduleTimeoutSeconds": 7}) == (7, [])
    seconds, [message] = timeout(volcano={"networkTopology": {"mode": "hard"}})
    assert (seconds, "runtime.spec.podGroupPolicy.volcano.networkTopology" in message) == (0, True)

    alone = TrainJobScene(runtime() | {"podGroupPolicy": {"coscheduling": {}}}).settle()
    assert not created(alone, "PodGroup")
    [told] = alone.warnings
    assert (told.reason, "--gang-scheduling" in told.message) == ("FieldsIgnored", True)


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        (runtime(startupPolicy={}), "runtime.spec.template.spec.startupPolicy"),
        (runtime(failurePolicy={"rules": []}), "runtime.spec.template.spec.failurePolicy.rules"),
        (
            runtime({"dependsOn": [{"name": "other", "status": "Ready"}]}),
            "runtime.spec.template.spec.replicatedJobs[0].dependsOn[0].name",
        ),
        (
            runtime(successPolicy={"targetReplicatedJobs": ["other"]}),
            "runtime.spec.template.spec.successPolicy.targetReplicatedJobs[0]",
        ),
        (
            runtime() | {"mlPolicy": {"mpi": {"mpiImplementation": "Intel"}}},
            "runtime.spec.mlPolicy.mpi.mpiImplementation",
        ),
        (runtime() | {"mlPolicy": {"mpi": {}}}, "must have one with name launcher"),
        (runtime({"replicas": 2}), "runtime.spec.template.spec.replicatedJobs[0].replicas"),
        (runtime() | {"mlPolicy": {"jax": {}}}, "runtime.spec.mlPolicy.jax"),
        (runtime({"name": "other"}), "runtime.spec.template.spec.replicatedJobs"),
    ],
)
def test_what_is_not_done_of_a_jobset_is_refused_by_name(changed: dict[str, Any], path: str) -> None:
    scene = TrainJobScene(changed)
    plan = scene.plan()

    [failed] = [one for one in (plan.status or {})["conditions"] if one["type"] == "Failed"]
    assert path in failed["message"]
    assert not plan.actions


def test_a_runtime_that_is_not_there_is_waited_for_and_said() -> None:
    plan = TrainJobScene(runtimeRef={"name": "none"}).plan()

    assert [event.reason for event in plan.warnings] == ["TrainingRuntimeNotFound"]
    assert plan.requeue_after_s
    assert plan.status is None
    suspended = TrainJobScene(runtimeRef={"name": "none"}, suspend=True).plan()
    assert not suspended.warnings


def test_of_a_runtime_that_is_not_there_nothing_is_said_beside_the_errors_of_the_job() -> None:
    broken = {"env": [{"name": "PET_NNODES", "value": "1"}]}
    plan = TrainJobScene(runtimeRef={"name": "none"}, trainer=broken).plan()

    [failed] = [one for one in (plan.status or {})["conditions"] if one["type"] == "Failed"]
    assert "spec.trainer.env[0].name" in failed["message"]
    assert "runtime.spec" not in failed["message"]


def test_a_job_whose_runtime_breaks_rules_fails_and_starts_when_that_is_mended() -> None:
    scene = TrainJobScene(runtime(startupPolicy={}))
    scene.settle()
    assert scene.condition("Failed")[:2] == ("True", "ValidationError")

    scene.runtime = runtime()
    scene.carry_out()

    assert list(scene.pods) == ["train-node-0-0"]
    assert "conditions" not in scene.status


def test_all_errors_of_a_manifest_at_once() -> None:
    read = read_train_job(
        {
            "metadata": {"name": "1st"},
            "spec": {
                "runtimeRef": {"kind": "Runtime"},
                "trainer": {"numNodes": "many", "env": [{"name": "PET_NNODES", "value": "1"}]},
                "initializer": {"dataset": {"from": "s3://a"}},
                "managedBy": "me",
                "nodes": 2,
            },
            "specs": {},
        }
    )

    assert sorted(error.path for error in read.errors) == [
        "metadata.name",
        "spec.initializer.dataset.from",
        "spec.managedBy",
        "spec.nodes",
        "spec.runtimeRef.kind",
        "spec.runtimeRef.name",
        "spec.trainer.env[0].name",
        "spec.trainer.numNodes",
        "specs",
    ]
