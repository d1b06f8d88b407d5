"""The objects of an MPIJob to the letter: names, labels, volumes, environment, host lists."""

from collections.abc import Callable
from typing import Any

import pytest

from gangline.jobs.hostfile import render_discover_hosts, render_hostfile
from gangline.jobs.plan import Create, EnsureKeyPair
from gangline.jobs.pods import build_launcher, build_worker

Build = Callable[..., Any]

OWNER = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "name": "pi",
    "uid": "job-uid",
    "controller": True,
    "blockOwnerDeletion": True,
}
SELECTOR = {
    "training.kubeflow.org/operator-name": "mpi-operator",
    "training.kubeflow.org/job-name": "pi",
}
SSH_ITEMS = [
    {"key": "ssh-privatekey", "path": "id_rsa"},
    {"key": "ssh-publickey", "path": "id_rsa.pub"},
    {"key": "ssh-publickey", "path": "authorized_keys"},
    {"key": "ssh-config", "path": "config", "mode": 0o644},
]
CONFIG_VOLUME = {
    "name": "mpi-job-config",
    "configMap": {
        "name": "pi-config",
        "items": [
            {"key": "hostfile", "path": "hostfile", "mode": 0o444},
            {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 0o555},
        ],
    },
}


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}


def created(plan: Any, kind: str) -> dict[str, Any]:
    return next(a.object for a in plan.actions if isinstance(a, Create) and a.object["kind"] == kind)


def test_worker_pod_with_everything_at_its_default(scene: Build) -> None:
    pod = build_worker(scene().read().job, 1)

    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "pi-worker-1",
            "namespace": "ns",
            "labels": {
                **SELECTOR,
                "training.kubeflow.org/job-role": "worker",
                "training.kubeflow.org/replica-index": "1",
            },
            "ownerReferences": [OWNER],
        },
        "spec": {
            "hostname": "pi-worker-1",
            "subdomain": "pi",
            "restartPolicy": "Never",
            "dnsConfig": {"searches": ["pi.ns.svc.cluster.local"]},
            "volumes": [
                {
                    "name": "ssh-auth",
                    "secret": {"secretName": "pi-ssh", "items": SSH_ITEMS, "defaultMode": 0o600},
                }
            ],
            "containers": [
                {
                    "name": "main",
                    "image": "image",
                    "command": ["/usr/sbin/sshd", "-De"],
                    "env": [{"name": "K_MPI_JOB_ROLE", "value": "worker"}],
                    "volumeMounts": [{"name": "ssh-auth", "mountPath": "/root/.ssh"}],
                }
            ],
        },
    }


def test_launcher_job_with_everything_at_its_default(scene: Build) -> None:
    job = build_launcher(scene().read().job)

    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["metadata"]["name"] == "pi-launcher"
    assert job["metadata"]["labels"]["app"] == "pi"
    assert job["metadata"]["ownerReferences"] == [OWNER]
    assert set(job["spec"]) == {"podReplacementPolicy", "template"}
    assert job["spec"]["podReplacementPolicy"] == "Failed"
    template = job["spec"]["template"]
    assert template["metadata"] == {"labels": {**SELECTOR, "training.kubeflow.org/job-role": "launcher"}}
    pod = template["spec"]
    assert (pod["hostname"], pod["subdomain"], pod["restartPolicy"]) == ("pi-launcher", "pi", "OnFailure")
    assert [volume["name"] for volume in pod["volumes"]] == ["ssh-auth", "mpi-job-config"]
    assert pod["volumes"][1] == CONFIG_VOLUME
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "ssh-auth", "mountPath": "/root/.ssh"},
        {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
    ]
    assert "command" not in pod["containers"][0]
    assert "dnsConfig" not in pod


def test_open_mpi_gets_the_variables_of_both_families(scene: Build) -> None:
    pod = build_launcher(scene(slotsPerWorker=3).read().job)["spec"]["template"]["spec"]

    assert environment(pod) == {
        "K_MPI_JOB_ROLE": "launcher",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_set_default_slots": "3",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
        "PRTE_MCA_prte_set_default_slots": "3",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
    }


@pytest.mark.parametrize(
    ("implementation", "want"),
    [
        (
            "Intel",
            {
                "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
                "I_MPI_PERHOST": "5",
            },
        ),
        (
            "MPICH",
            {
                "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
                "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
            },
        ),
    ],
)
def test_hydra_gets_its_own_variables(scene: Build, implementation: str, want: dict[str, str]) -> None:
    job = scene(slotsPerWorker=5, mpiImplementation=implementation, runLauncherAsWorker=True).read().job

    pod = build_launcher(job)["spec"]["template"]["spec"]

    assert environment(pod) == {"K_MPI_JOB_ROLE": "launcher", **want}


def test_the_users_binding_policy_stands(scene: Build) -> None:
    one = scene()
    one.main("Launcher")["env"] = [{"name": "PRTE_MCA_hwloc_default_binding_policy", "value": "core"}]

    env = build_launcher(one.read().job)["spec"]["template"]["spec"]["containers"][0]["env"]

    assert [v["value"] for v in env if v["name"] == "PRTE_MCA_hwloc_default_binding_policy"] == ["core"]
    assert env[0]["value"] == "core"


def test_launcher_as_worker_takes_index_0_and_keeps_its_gpus(scene: Build) -> None:
    job = scene(runLauncherAsWorker=True).read().job

    launcher = build_launcher(job)["spec"]["template"]
    worker = build_worker(job, 0)

    assert launcher["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "0"
    assert worker["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "1"
    assert "NVIDIA_VISIBLE_DEVICES" not in environment(launcher["spec"])


def test_what_the_user_set_comes_first_and_stays(scene: Build) -> None:
    one = scene(
        workers=13,
        slotsPerWorker=5,
        mpiImplementation="Intel",
        sshAuthMountPath="/home/mpiuser/.ssh",
        runPolicy={"ttlSecondsAfterFinished": 1, "activeDeadlineSeconds": 2, "backoffLimit": 3},
    )
    for role in ("Launcher", "Worker"):
        one.role(role)["restartPolicy"] = "OnFailure"
        one.role(role)["template"]["metadata"] = {
            "name": "dropped",
            "finalizers": ["dropped/too"],
            "labels": {"foo": "bar", "training.kubeflow.org/job-role": "mine"},
            "annotations": {"sidecar.istio.io/inject": "false"},
        }
        pod = one.pod_spec(role)
        pod["hostNetwork"] = True
        pod["volumes"] = [{"name": "mine", "emptyDir": {}}]
        pod["containers"][0] |= {
            "command": ["/entrypoint"],
            "env": [{"name": "FOO", "value": "bar"}],
            "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
        }
        pod["containers"].append({"name": "side", "image": "side"})
    job = one.read().job

    launcher, worker = build_launcher(job)["spec"], build_worker(job, 12)

    assert {key: launcher[key] for key in launcher if key not in ("template", "podReplacementPolicy")} == {
        "activeDeadlineSeconds": 2,
        "backoffLimit": 3,
    }
    for metadata, role in ((launcher["template"]["metadata"], "launcher"), (worker["metadata"], "worker")):
        assert metadata["labels"]["foo"] == "bar"
        assert metadata["labels"]["training.kubeflow.org/job-role"] == role
        assert metadata["annotations"] == {"sidecar.istio.io/inject": "false"}
        assert "finalizers" not in metadata
    for pod in (launcher["template"]["spec"], worker["spec"]):
        main, side = pod["containers"]
        assert pod["dnsPolicy"] == "ClusterFirstWithHostNet"
        assert pod["restartPolicy"] == "OnFailure"
        assert pod["volumes"][0] == {"name": "mine", "emptyDir": {}}
        assert pod["volumes"][1] == {
            "name": "ssh-auth",
            "secret": {"secretName": "pi-ssh", "items": SSH_ITEMS},
        }
        assert main["env"][0] == {"name": "FOO", "value": "bar"}
        assert main["command"] == ["/entrypoint"]
        assert main["volumeMounts"][:2] == [
            {"name": "mine", "mountPath": "/mine"},
            {"name": "ssh-auth", "mountPath": "/home/mpiuser/.ssh"},
        ]
        assert side == {"name": "side", "image": "side"}
    assert worker["metadata"]["name"] == "pi-worker-12"


def test_arguments_alone_keep_the_images_command(scene: Build) -> None:
    one = scene()
    one.main("Worker")["args"] = ["sshd", "-De"]

    assert "command" not in build_worker(one.read().job, 0)["spec"]["containers"][0]


def test_building_leaves_the_users_template_alone(scene: Build) -> None:
    one = scene()
    job = one.read().job
    before = build_worker(job, 0)

    build_launcher(job)

    assert build_worker(job, 0) == before
    assert "env" not in one.main("Worker")


def test_search_domain_follows_the_cluster_domain(scene: Build) -> None:
    one = scene()
    one.pod_spec("Worker")["dnsConfig"] = {"searches": ["mine"], "options": []}

    config = build_worker(one.read().job, 0, "example.org")["spec"]["dnsConfig"]

    assert config == {"searches": ["mine", "pi.ns.svc.example.org"], "options": []}


def test_service_config_map_and_secret(scene: Build) -> None:
    plan = scene().plan()

    service, config_map = created(plan, "Service"), created(plan, "ConfigMap")
    (key_pair,) = (action for action in plan.actions if isinstance(action, EnsureKeyPair))
    assert service["metadata"]["name"] == "pi"
    assert service["spec"] == {
        "clusterIP": "None",
        "selector": SELECTOR,
        "publishNotReadyAddresses": False,
    }
    assert config_map["metadata"]["name"] == "pi-config"
    assert config_map["data"] == {
        "hostfile": "pi-worker-0.pi.ns.svc slots=1\npi-worker-1.pi.ns.svc slots=1\n",
        "discover_hosts.sh": "#!/bin/sh\n",
    }
    assert key_pair.secret["metadata"]["name"] == "pi-ssh"
    assert key_pair.secret["type"] == "kubernetes.io/ssh-auth"
    assert list(key_pair.secret["data"]) == ["ssh-config"]
    for child in (service, config_map, key_pair.secret):
        assert child["metadata"]["namespace"] == "ns"
        assert child["metadata"]["labels"]["app"] == "pi"
        assert child["metadata"]["ownerReferences"] == [OWNER]


def test_a_name_that_begins_with_a_digit_gets_a_service_of_another_name(scene: Build) -> None:
    one = scene("16gpu")

    plan = one.plan()

    assert created(plan, "Service")["metadata"]["name"] == "mpi-16gpu"
    assert created(plan, "Pod")["spec"]["subdomain"] == "mpi-16gpu"
    assert created(plan, "ConfigMap")["data"]["hostfile"].startswith(
        "16gpu-worker-0.mpi-16gpu.ns.svc slots=1\n"
    )


@pytest.mark.parametrize(
    ("workers", "spec", "domain", "want"),
    [
        (2, {"runLauncherAsWorker": True}, "", ["launcher", "worker-0", "worker-1", " slots=1"]),
        (1, {"runLauncherAsWorker": True}, ".c.l", ["launcher", "worker-0", " slots=1"]),
        (None, {"runLauncherAsWorker": True}, "", ["launcher", " slots=1"]),
        (2, {}, "", ["worker-0", "worker-1", " slots=1"]),
        (1, {"slotsPerWorker": 10}, "", ["worker-0", " slots=10"]),
        (1, {}, ".c.l", ["worker-0", " slots=1"]),
        (1, {"mpiImplementation": "Intel", "slotsPerWorker": 10}, "", ["worker-0", ":10"]),
        (1, {"mpiImplementation": "Intel"}, ".c.l", ["worker-0", ":1"]),
        (1, {"mpiImplementation": "MPICH", "slotsPerWorker": 10}, "", ["worker-0", ":10"]),
        (1, {"mpiImplementation": "MPICH"}, ".c.l", ["worker-0", ":1"]),
        (11, {}, "", [*(f"worker-{index}" for index in range(11)), " slots=1"]),
    ],
)
def test_hostfile(
    scene: Build, workers: int | None, spec: dict[str, Any], domain: str, want: list[str]
) -> None:
    job = scene(workers=workers, **spec).read().job

    *hosts, slots = want
    assert render_hostfile(job, domain.removeprefix(".")) == "".join(
        f"pi-{host}.pi.ns.svc{domain}{slots}\n" for host in hosts
    )


@pytest.mark.parametrize("launcher", [False, True])
@pytest.mark.parametrize("domain", ["", "c.l"])
def test_discover_hosts_lists_the_launcher_then_workers_sorted_as_text(
    scene: Build, launcher: bool, domain: str
) -> None:
    job = scene(workers=11, runLauncherAsWorker=launcher).read().job
    end = f".pi.ns.svc.{domain}" if domain else ".pi.ns.svc"

    script = render_discover_hosts(job, ["pi-worker-2", "pi-worker-10", "pi-worker-0"], domain)

    hosts = ["pi-launcher"] * launcher + ["pi-worker-0", "pi-worker-10", "pi-worker-2"]
    assert script == "#!/bin/sh\n" + "".join(f"echo {host}{end}\n" for host in hosts)
