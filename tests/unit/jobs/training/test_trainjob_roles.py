"""TrainJobs of several roles: mpirun and its hosts, initializers. Values are Kubeflow Trainer's (2.3.0)."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from gangline.api.core import ConfigMap, Secret
from gangline.api.resources import CONFIG_MAPS
from gangline.api.trainer.bundled import bundled_runtimes
from gangline.api.trainer.job import Runtime
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Create, EnsureKeyPair, Patch, Plan
from gangline.jobs.settings import Settings
from gangline.jobs.training import trainjob
from gangline.scheduler.explained.published import DEFAULT_NAMES

from .conftest import created
from .test_trainjob import TrainJobScene, read_observed, runtime_called

KIND = "ClusterTrainingRuntime"


class RolesScene(TrainJobScene):
    """A TrainJob of a runtime with several roles, and the objects that it mounts."""

    def __init__(self, spec: dict[str, Any], **job: Any) -> None:
        super().__init__(spec, **job)
        self.secrets: dict[str, Secret] = {}
        self.config_maps: dict[str, ConfigMap] = {}

    def plan(self) -> Plan:
        """Return the plan of now."""
        found = msgspec.convert({"kind": KIND, "spec": self.runtime}, Runtime)
        observed = ObservedChildren(
            services=self.services,
            pods=self.pods,
            pod_groups=self.pod_groups,
            secrets=self.secrets,
            config_maps=self.config_maps,
            runtimes={(KIND, "torch-distributed"): found},
        )
        read = read_observed(self)
        return trainjob.reconcile(read, observed, self.now, raw_status=self.status, settings=self.settings)

    def _do(self, action: Any) -> None:
        if isinstance(action, EnsureKeyPair):
            name = action.secret["metadata"]["name"]
            self.secrets[name] = msgspec.convert({"metadata": action.secret["metadata"]}, Secret)
        elif isinstance(action, Create) and action.resource == CONFIG_MAPS:
            name = action.object["metadata"]["name"]
            self.config_maps[name] = msgspec.convert(action.object, ConfigMap)
        else:
            super()._do(action)

    def ready(self, role: str, index: int) -> RolesScene:
        """Let a pod run and be ready."""
        self.pod(role, index, "Running", conditions=[{"type": "Ready", "status": "True"}])
        return self


def mpi_scene(numNodes: int = 3, **trainer: Any) -> RolesScene:  # noqa: N803 - as in manifests
    return RolesScene(runtime_called("deepspeed-distributed"), trainer={"numNodes": numNodes, **trainer})


def variables(pod: dict[str, Any]) -> dict[str, str]:
    [container] = pod["spec"]["containers"]
    return {one["name"]: one["value"] for one in container.get("env", [])}


def mounts(pod: dict[str, Any]) -> dict[str, str]:
    [container] = pod["spec"]["containers"]
    return {one["name"]: one["mountPath"] for one in container["volumeMounts"]}


def test_hosts_are_made_first_and_the_launcher_when_all_are_ready() -> None:
    scene = mpi_scene()
    assert list(created(scene.settle(), "Pod")) == ["train-node-0-0", "train-node-0-1"]

    scene.ready("node", 0).pod("node", 1, "Running")
    assert list(created(scene.plan(), "Pod")) == []
    scene.ready("node", 1)
    assert list(created(scene.plan(), "Pod")) == ["train-launcher-0-0"]


def test_a_gang_starts_whole_with_its_launcher() -> None:
    scene = mpi_scene()
    scene.settings = Settings(gang_scheduling=DEFAULT_NAMES[0])
    plan = scene.settle()

    assert sorted(created(plan, "Pod")) == ["train-launcher-0-0", "train-node-0-0", "train-node-0-1"]
    [group] = created(plan, "PodGroup").values()
    assert group["spec"]["minMember"] == 3


def test_launcher_and_hosts_have_the_keys_and_the_launcher_the_list_of_hosts() -> None:
    scene = mpi_scene(
        numProcPerNode=2, command=["mpirun", "train"], image="mine", env=[{"name": "A", "value": "1"}]
    )
    scene.settle()
    scene.ready("node", 0).ready("node", 1)
    plan = scene.plan()

    launcher = created(plan, "Pod")["train-launcher-0-0"]
    [container] = launcher["spec"]["containers"]
    assert (container["image"], container["command"]) == ("mine", ["mpirun", "train"])
    assert variables(launcher) == {
        "A": "1",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
        "PRTE_MCA_prte_set_default_slots": "2",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    assert mounts(launcher) == {"mpi-ssh-auth": "/home/mpiuser/.ssh", "mpi-hostfile": "/etc/mpi"}
    [secret] = [volume["secret"] for volume in launcher["spec"]["volumes"] if "secret" in volume]
    assert (secret["secretName"], secret["defaultMode"]) == ("train-mpi-ssh-auth", 0o400)
    assert [(item["path"], item["mode"]) for item in secret["items"]][:3] == [
        ("id_rsa", 0o640),
        ("id_rsa.pub", 0o644),
        ("authorized_keys", 0o644),
    ]
    scene.pods.clear()
    plan = scene.plan()
    node = created(plan, "Pod")["train-node-0-1"]
    [container] = node["spec"]["containers"]
    assert (container["image"], container["command"]) == ("mine", ["/usr/sbin/sshd"])
    assert variables(node) == {"A": "1"}
    assert mounts(node) == {"mpi-ssh-auth": "/home/mpiuser/.ssh"}
    [pair] = [action for action in plan.actions if isinstance(action, EnsureKeyPair)]
    assert pair.secret["metadata"]["name"] == "train-mpi-ssh-auth"
    assert (pair.secret["type"], pair.secret["immutable"]) == ("kubernetes.io/ssh-auth", True)
    config = base64.b64decode(pair.secret["data"]["ssh-config"]).decode()
    assert "Match host *.train exec" in config, "ssh waits for the names of these hosts"
    assert created(plan, "ConfigMap")["train-mpi-hostfile"]["data"]["hostfile"].splitlines() == [
        "train-launcher-0-0.train slots=2",
        "train-node-0-0.train slots=2",
        "train-node-0-1.train slots=2",
    ]


def test_ranks_of_a_node_are_its_gpus_where_nobody_says_and_the_list_follows() -> None:
    scene = mpi_scene(2, resourcesPerNode={"limits": {"nvidia.com/gpu": 4}})
    plan = scene.settle()
    [hosts] = created(plan, "ConfigMap").values()
    assert "train-node-0-0.train slots=4\n" in hosts["data"]["hostfile"]

    scene.config_maps["train-mpi-hostfile"] = msgspec.convert(
        {"metadata": hosts["metadata"], "data": {"hostfile": "old"}}, ConfigMap
    )
    [patch] = [action for action in scene.plan().actions if isinstance(action, Patch)]
    assert (patch.name, patch.body["data"]) == ("train-mpi-hostfile", hosts["data"])


def test_one_node_is_the_launcher_and_one_host_as_upstream() -> None:
    """Source: the plugin of upstream, max(numNodes - 1, 1)."""
    assert list(created(mpi_scene(1).settle(), "Pod")) == ["train-node-0-0"]


def test_a_launcher_that_is_no_node_leaves_all_nodes_to_the_hosts() -> None:
    spec = runtime_called("deepspeed-distributed")
    spec["mlPolicy"]["mpi"]["runLauncherAsNode"] = False
    scene = RolesScene(spec, trainer={"numNodes": 2, "resourcesPerNode": {"limits": {"cpu": "1"}}})
    plan = scene.settle()

    nodes = created(plan, "Pod")
    assert list(nodes) == ["train-node-0-0", "train-node-0-1"]
    assert nodes["train-node-0-0"]["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    [hosts] = created(plan, "ConfigMap").values()
    assert "launcher" not in hosts["data"]["hostfile"]
    scene.ready("node", 0).ready("node", 1)
    launcher = created(scene.plan(), "Pod")["train-launcher-0-0"]
    assert "resources" not in launcher["spec"]["containers"][0]


def test_the_launcher_alone_ends_the_job() -> None:
    scene = mpi_scene(2).ready("node", 0)
    scene.carry_out()
    scene.pod("launcher", 0, "Succeeded")
    scene.carry_out()

    assert scene.condition("Complete")[0] == "True"
    assert not [name for name in scene.pods if "node" in name]


def initializer_runtime() -> dict[str, Any]:
    """Return a runtime of a job that fetches data before the nodes start."""
    spec = runtime_called("torch-distributed")
    jobs = spec["template"]["spec"]["replicatedJobs"]
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}}
    container = {
        "name": "dataset-initializer",
        "image": "fetch",
        "env": [{"name": "STORAGE_URI", "value": "hf://a"}],
    }
    template = {"metadata": step, "spec": {"template": {"spec": {"containers": [container]}}}}
    jobs.insert(0, {"name": "dataset-initializer", "template": template})
    jobs[1]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    return spec


def test_an_initializer_fetches_what_the_job_names_and_is_no_member_of_the_gang() -> None:
    dataset = {
        "storageUri": "s3://mine",
        "env": [{"name": "B", "value": "2"}],
        "secretRef": {"name": "login"},
    }
    scene = RolesScene(initializer_runtime(), trainer={"numNodes": 2}, initializer={"dataset": dataset})
    scene.settings = Settings(gang_scheduling=DEFAULT_NAMES[0])
    plan = scene.settle()

    [pod] = created(plan, "Pod").values()
    assert pod["metadata"]["name"] == "train-dataset-initializer-0-0"
    assert variables(pod) == {"STORAGE_URI": "s3://mine", "B": "2"}
    assert pod["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "login"}}]
    assert "schedulerName" not in pod["spec"]
    [group] = created(plan, "PodGroup").values()
    assert group["spec"]["minMember"] == 2
    scene.pod("dataset-initializer", 0, "Succeeded")
    nodes = created(scene.plan(), "Pod")
    assert list(nodes) == ["train-node-0-0", "train-node-0-1"]
    assert all(node["spec"]["schedulerName"] for node in nodes.values())
    [group] = created(scene.plan(), "PodGroup").values()
    assert group["spec"]["minMember"] == 2


def test_an_initializer_that_the_runtime_does_not_have_is_refused() -> None:
    scene = RolesScene(runtime_called("torch-distributed"), initializer={"model": {"storageUri": "hf://a"}})
    plan = scene.plan()

    [failed] = [one for one in (plan.status or {})["conditions"] if one["type"] == "Failed"]
    assert "spec.initializer.model" in failed["message"]
    assert not plan.actions


def test_every_bundled_runtime_is_taken_by_its_name() -> None:
    names = [runtime["metadata"]["name"] for runtime in bundled_runtimes()]

    assert names == ["torch-distributed", "mpi-distributed", "deepspeed-distributed"]
    for name in names:
        assert created(RolesScene(runtime_called(name)).settle(), "Pod"), name
