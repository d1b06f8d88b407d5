"""TrainJobs whose runtime asks for what only JobSet does; expected values are upstream's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.api.trainer.bundled import bundled_runtimes
from gangline.api.trainer.job import Runtime
from gangline.api.trainer.job_set import JobSet
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Create, Patch, Plan
from gangline.jobs.settings import Settings
from gangline.jobs.training import trainjob

from .conftest import UID, created, deleted
from .test_trainjob import TrainJobScene, read_observed, runtime, runtime_called

AT = "runtime.spec.template.spec"
RULES = {"maxRestarts": 3, "rules": [{"action": "FailJobSet"}]}
CREATED = {"type": "Created", "status": "True"}


class JobSetScene(TrainJobScene):
    """A TrainJob on a cluster with JobSet, and its JobSet once one is made."""

    def __init__(self, runtime: dict[str, Any], **spec: Any) -> None:
        super().__init__(runtime, **spec)
        self.serves = True
        self.job_set: dict[str, Any] | None = None

    def plan(self) -> Plan:
        """Return the plan of now."""
        ref = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "torch-distributed"}}
        found = msgspec.convert({**ref, "spec": self.runtime}, Runtime)
        sets = {"train": msgspec.convert(self.job_set, JobSet)} if self.job_set else {}
        observed = ObservedChildren(
            pods=self.pods,
            services=self.services,
            pod_groups=self.pod_groups,
            runtimes={("ClusterTrainingRuntime", "torch-distributed"): found},
            job_sets=sets,
            serves_job_sets=self.serves,
        )
        read = read_observed(self)
        return trainjob.reconcile(read, observed, self.now, raw_status=self.status, settings=self.settings)

    def make(self, **status: Any) -> dict[str, Any]:
        """Take the JobSet over that a plan creates, with that status, and return it."""
        wanted = created(self.settle(), "JobSet")["train"]
        meta = {**wanted["metadata"], "uid": "set-uid"}
        self.job_set = {**wanted, "metadata": meta, "status": status}
        return wanted

    def ends(self, type_: str, reason: str, message: str) -> None:
        """Have the JobSet end so."""
        assert self.job_set is not None
        end = {"type": type_, "status": "True", "reason": reason, "message": message}
        self.job_set["status"] = {"conditions": [end]}


def reasons(plan: Plan) -> list[str]:
    return [one.telling.done.reason for one in plan.actions if isinstance(one, Create) and one.telling]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"failurePolicy": RULES}, "failurePolicy.rules"),
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, "startupPolicy"),
        ({"coordinator": {"replicatedJob": "node"}}, "coordinator"),
        ({"network": {"subdomain": "ours"}}, "network.subdomain"),
        ({"ttlSecondsAfterFinished": 60}, "ttlSecondsAfterFinished"),
    ],
)
def test_a_field_that_only_jobset_does_has_one_made_and_is_told(more: dict[str, Any], field: str) -> None:
    scene = JobSetScene(runtime(**more))
    plan = scene.settle()

    assert list(created(plan, "JobSet")) == ["train"]
    assert not created(plan, "Pod")
    assert not created(plan, "Service")
    assert scene.status["jobSetFor"] == [f"{AT}.{field}"]
    [create] = [one for one in plan.actions if isinstance(one, Create)]
    assert create.telling is not None
    said = create.telling.done
    assert (said.type, said.reason) == ("Normal", "JobSetUsed")
    assert said.message.endswith(f"only JobSet does {AT}.{field}")


@pytest.mark.parametrize(
    ("batch", "name"),
    [
        ({"podFailurePolicy": {"rules": []}}, "podFailurePolicy"),
        ({"completionMode": "NonIndexed"}, "completionMode"),
        ({"activeDeadlineSeconds": 5}, "activeDeadlineSeconds"),
    ],
)
def test_so_has_a_field_of_a_job_that_only_its_controller_does(batch: dict[str, Any], name: str) -> None:
    spec = runtime()
    spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"] |= batch
    scene = JobSetScene(spec)
    scene.settle()

    assert scene.status["jobSetFor"] == [f"{AT}.replicatedJobs[0].template.spec.{name}"]


@pytest.mark.parametrize("name", [one["metadata"]["name"] for one in bundled_runtimes()])
def test_no_bundled_runtime_needs_one(name: str) -> None:
    scene = JobSetScene(runtime_called(name))
    plan = scene.settle()

    assert not created(plan, "JobSet")
    assert created(plan, "Pod")


def test_a_cluster_without_jobset_refuses_by_the_field_and_says_what_to_install() -> None:
    scene = JobSetScene(runtime(failurePolicy=RULES))
    scene.serves = False
    plan = scene.settle()

    status, reason, message = scene.condition("Failed")
    assert (status, reason) == ("True", "ValidationError")
    assert f"{AT}.failurePolicy.rules: NotSupported: is done by JobSet alone" in message
    assert "install it (https://jobset.sigs.k8s.io/docs/installation)" in message
    assert plan.requeue_after_s == 10

    scene.serves = True
    assert list(created(scene.settle(), "JobSet")) == ["train"]
    assert "conditions" not in scene.status


def test_the_job_set_is_what_upstream_writes_with_what_the_webhook_fills_in() -> None:
    trainer = {"numNodes": 3, "numProcPerNode": 2, "image": "mine", "command": ["go"]}
    made = JobSetScene(runtime(failurePolicy=RULES), trainer=trainer).make()

    spec = made["spec"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == UID
    assert spec["suspend"] is False
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert spec["failurePolicy"]["rules"] == [{"name": "failurePolicyRule0", "action": "FailJobSet"}]
    (job,) = spec["replicatedJobs"]
    assert (job["name"], job["replicas"], job["groupName"]) == ("node", 1, "default")
    batch = job["template"]["spec"]
    assert (batch["parallelism"], batch["completions"], batch["completionMode"]) == (3, 3, "Indexed")
    pods = batch["template"]
    assert pods["spec"]["restartPolicy"] == "OnFailure"
    assert pods["metadata"]["labels"]["training.kubeflow.org/job-name"] == "train"
    (container,) = pods["spec"]["containers"]
    assert (container["image"], container["command"]) == ("mine", ["go"])
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert told == {
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": None,
        "PET_MASTER_ADDR": "train-node-0-0.train",
        "PET_MASTER_PORT": "29500",
    }


def test_names_follow_the_subdomain_that_a_runtime_gives() -> None:
    made = JobSetScene(runtime(network={"subdomain": "ours"})).make()

    container = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "PET_MASTER_ADDR", "value": "train-node-0-0.ours"} in container["env"]


def test_several_of_a_job_that_is_not_told_its_rank_are_made_and_of_the_one_that_is_refused() -> None:
    spec = runtime()
    jobs = spec["template"]["spec"]["replicatedJobs"]
    pods = {"spec": {"containers": [{"name": "store", "image": "x"}]}}
    jobs.insert(
        0, {"name": "store", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": pods}}}
    )
    made = JobSetScene(spec).make()
    store = made["spec"]["replicatedJobs"][0]
    assert (store["replicas"], store["template"]["spec"]["parallelism"]) == (2, 3)
    assert store["template"]["spec"]["completions"] == 3

    scene = JobSetScene(runtime({"replicas": 2}))
    scene.settle()
    assert f"{AT}.replicatedJobs[0].replicas: Invalid: must be 1" in scene.condition("Failed")[2]


def test_mpirun_gets_its_keys_and_hosts_before_the_job_set() -> None:
    spec = msgspec.json.decode(msgspec.json.encode(runtime_called("mpi-distributed")))
    spec["template"]["spec"]["failurePolicy"] = RULES
    scene = JobSetScene(spec, trainer={"numNodes": 3})
    stages = scene.settle().stages

    assert [type(one).__name__ for one in stages[0]] == ["EnsureKeyPair", "Create"]
    (create,) = stages[1]
    assert isinstance(create, Create)
    launcher = create.object["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    assert launcher["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"
    assert {one["name"] for one in launcher["spec"]["volumes"]} == {"mpi-ssh-auth", "mpi-hostfile"}


def test_the_status_follows_the_job_sets() -> None:
    scene = JobSetScene(runtime(failurePolicy=RULES))
    counted = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    scene.make(replicatedJobsStatus=[counted], restarts=2)
    scene.settle()
    assert (scene.status["jobsStatus"], scene.status["restarts"]) == ([counted], 2)
    assert "conditions" not in scene.status

    scene.ends("Completed", "AllJobsCompleted", "jobset completed successfully")
    plan = scene.settle()
    assert scene.condition("Complete") == ("True", "AllJobsCompleted", "jobset completed successfully")
    assert not plan.actions


def test_a_job_fails_as_its_job_set_does() -> None:
    scene = JobSetScene(runtime(failurePolicy=RULES))
    scene.make()
    scene.ends("Failed", "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
    scene.settle()

    assert scene.condition("Failed")[1:] == (
        "ReachedMaxRestarts",
        "jobset failed due to reaching max number of restarts",
    )


def test_a_deadline_ends_the_job_and_then_its_job_set() -> None:
    scene = JobSetScene(runtime(failurePolicy=RULES), activeDeadlineSeconds=60)
    scene.make()
    assert scene.settle().requeue_after_s == 60

    scene.later(60)
    first = scene.plan()
    assert not first.actions  # the end is written down first
    assert deleted(scene.settle(), "JobSet") == ["train"]
    assert scene.condition("Failed")[1] == "DeadlineExceeded"


def test_what_a_runtime_keeps_finished_jobs_for_is_kept_once_the_end_is_written() -> None:
    scene = JobSetScene(runtime(ttlSecondsAfterFinished=60))
    assert "ttlSecondsAfterFinished" not in scene.make()["spec"]
    scene.ends("Completed", "AllJobsCompleted", "jobset completed successfully")
    plan = scene.settle()
    assert (plan.actions, plan.requeue_after_s) == ((), 60)

    assert deleted(scene.later(60).plan(), "JobSet") == ["train"]
    scene.job_set = None
    assert not scene.plan().actions  # nor is it made again


def test_suspension_goes_on_to_the_job_set_and_is_taken_back() -> None:
    scene = JobSetScene(runtime(failurePolicy=RULES))
    scene.make()
    assert scene.job_set is not None
    scene.spec["suspend"] = True
    (held,) = scene.settle().actions
    assert isinstance(held, Patch)
    assert held.body == {"spec": {"suspend": True}}
    assert scene.condition("Suspended")[:2] == ("True", "Suspended")

    scene.job_set["spec"]["suspend"] = True
    assert not scene.plan().actions
    scene.spec["suspend"] = False
    (going,) = scene.settle().actions
    assert isinstance(going, Patch)
    assert going.body == {"spec": {"suspend": False}}
    assert scene.condition("Suspended")[:2] == ("False", "Resumed")


def test_a_job_that_was_patched_while_suspended_gets_its_job_set_anew() -> None:
    scene = JobSetScene(runtime(failurePolicy=RULES))
    scene.make()
    assert scene.job_set is not None
    scene.job_set["spec"]["suspend"] = True
    change = {"template": {"spec": {"replicatedJobs": [{"name": "node", "groupName": "other"}]}}}
    scene.spec["runtimePatches"] = [{"manager": "me", "trainingRuntimeSpec": change}]

    assert deleted(scene.settle(), "JobSet") == ["train"]
    scene.job_set = None
    assert list(created(scene.plan(), "JobSet")) == ["train"]


def test_a_job_with_pods_of_its_own_gets_a_job_set_when_it_was_suspended() -> None:
    scene = JobSetScene(runtime())
    scene.carry_out()
    scene.runtime = runtime(failurePolicy=RULES)
    plan = scene.plan()
    assert not plan.actions
    assert "suspend the job and resume it" in plan.warnings[0].message

    scene.spec["suspend"] = True
    assert deleted(scene.settle()) == ["train-node-0-0"]


def test_pods_join_a_gang_unless_jobs_start_one_after_another() -> None:
    scene = JobSetScene(runtime(failurePolicy=RULES), trainer={"numNodes": 2})
    scene.settings = Settings(gang_scheduling="ours")
    plan = scene.settle()
    assert created(plan, "PodGroup")["train"]["spec"]["minMember"] == 2
    pods = created(plan, "JobSet")["train"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pods["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "train"

    scene = JobSetScene(runtime(startupPolicy={"startupPolicyOrder": "InOrder"}))
    scene.settings = Settings(gang_scheduling="ours")
    plan = scene.settle()
    assert not created(plan, "PodGroup")
    pods = created(plan, "JobSet")["train"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pods["spec"]["schedulerName"] == "ours"
    assert "runtime.spec.podGroupPolicy" in plan.warnings[0].message
