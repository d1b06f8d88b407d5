"""From a container to what the shim starts: paths in plain mode, mounts in the others, users, names."""

from pathlib import Path

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.cluster.images.image import Image
from gangline.cluster.node.pods.container_env import Lookup, PodFacts
from gangline.cluster.node.pods.container_plan import (
    ACCOUNT_IN_POD,
    PodFolders,
    StartRefusedError,
    plan_container,
    rewrite_paths,
)
from gangline.cluster.node.shim.syscalls import KEPT_CAPABILITIES
from gangline.cluster.user_session import UserSession

IMAGE = Image("gangline/base", ("/mpi/bin",), ("/mpi",), {"PRTE_MCA_plm_ssh_agent": "gangline-rsh"})
VOLUMES = {"job": Path("/pods/u/volumes/job"), "code": Path("/src/code")}


def plan(
    container: dict, *, isolation="network", spec=None, name="p", session=None, kind="machine", labels=None
):
    whole = {"containers": [{"name": "c", "image": "gangline/base"} | container]} | (spec or {})
    meta = {"name": name, "namespace": "ns", "uid": "u", "labels": labels or {}}
    pod = msgspec.convert({"metadata": meta, "spec": whole}, Pod)
    place = PodFolders(
        isolation=isolation,
        cluster_id="abcd",
        folder=Path("/pods/u"),
        logs=Path("/logs/u"),
        bin=Path("/state/bin"),
        names=Path("/run/x/names/ns"),
        hosts=Path("/state/hosts/ns"),
        resolv=Path("/state/resolv.conf") if isolation == "network" else None,
        api_host="10.0.0.1",
        api_port=16443,
        start_folders="/guard",
        session=session,
        session_kind=kind if session else "",
    )
    lookup = Lookup(lambda _: None, lambda _: None)
    return plan_container(pod, pod.spec.containers[0], 2, IMAGE, place, VOLUMES, PodFacts("", "", {}), lookup)


SESSION = UserSession(
    namespace="ns",
    name="job",
    environment={
        "HOME": "/home/ada",
        "PATH": "/ada/bin",
        "HF_TOKEN": "secret",
        "OMPI_MCA_pml": "ucx",
        "X": "/etc/mpi",
    },
    uid=1000,
    gid=1001,
    groups=(1001, 44),
    umask=0o027,
    limits={"nofile": (1024, 4096), "stack": (8 << 20, -1)},
    cpus=(0, 1),
)
LAUNCHER = {
    "command": ["mpirun", "/etc/mpi/x"],
    "env": [{"name": "HOSTFILE", "value": "/etc/mpi/hostfile"}, {"name": "PICK", "value": "$(HF_TOKEN)"}],
    "volumeMounts": [{"name": "job", "mountPath": "/etc/mpi"}],
}


@pytest.mark.parametrize("isolation", ["network", "user", "plain"])
def test_in_a_users_session_the_users_variables_hold_and_no_path_of_the_users_is_touched(isolation):
    spec = plan(LAUNCHER, isolation=isolation, session=SESSION)

    env = spec["env"]
    assert {name: env[name] for name in ("HOME", "HF_TOKEN", "OMPI_MCA_pml", "X")} == {
        "HOME": "/home/ada",
        "HF_TOKEN": "secret",
        "OMPI_MCA_pml": "ucx",
        "X": "/etc/mpi",
    }
    assert env["PATH"] == "/state/bin:/ada/bin"
    assert env["HOSTFILE"] == "/pods/u/volumes/job/hostfile"  # ours, and no mount shows it
    assert spec["argv"] == ["mpirun", "/etc/mpi/x"]
    assert (spec["root"], spec["user"], spec["capabilities"]) == (None, None, None)
    assert spec["session"]["umask"] == 0o027
    assert spec["session"]["limits"]["RLIMIT_NOFILE"] == [1024, 4096]
    assert spec["session"]["map_user"] is None


def test_a_pod_with_a_host_name_of_its_own_is_called_by_the_users_name_in_a_user_namespace():
    of = {
        mode: plan(LAUNCHER, isolation=mode, session=SESSION, kind="node")
        for mode in ("network", "user", "plain")
    }

    assert of["user"]["session"]["map_user"] == [1000, 1001]
    assert of["network"]["session"]["map_user"] is of["plain"]["session"]["map_user"] is None
    assert [spec["env"].get("HOSTNAME") for spec in of.values()] == ["p", "p", None]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("/etc/mpi", "/p/mpi"),
        ("/etc/mpi/hostfile", "/p/mpi/hostfile"),
        ("--hostfile=/etc/mpi/hostfile", "--hostfile=/p/mpi/hostfile"),
        ("a:/etc/mpi:b", "a:/p/mpi:b"),
        ("/etc/mpix", "/etc/mpix"),
        ("/root/etc/mpi", "/root/etc/mpi"),
        ("/etc/mpi/deep/x", "/p/deep/x"),
        ("nothing", "nothing"),
    ],
)
def test_rewrite_paths_changes_whole_paths_only(text, want):
    assert rewrite_paths(text, {"/etc/mpi": "/p/mpi", "/etc/mpi/deep": "/p/deep"}) == want


def test_plain_pod_gets_folders_in_place_of_mounts():
    found = plan(
        {
            "command": ["cat", "/etc/mpi/hostfile"],
            "env": [{"name": "HOSTFILE", "value": "/etc/mpi/hostfile"}],
            "workingDir": "/etc/mpi",
            "volumeMounts": [
                {"name": "job", "mountPath": "/etc/mpi"},
                {"name": "code", "mountPath": "/src/code"},
            ],
        },
        isolation="plain",
    )

    assert found["argv"] == ["cat", "/pods/u/volumes/job/hostfile"]
    assert found["env"]["HOSTFILE"] == "/pods/u/volumes/job/hostfile"
    assert found["cwd"] == "/pods/u/volumes/job"
    assert found["root"] is None
    assert found["env"]["PRTE_MCA_plm_ssh_agent"] == "/state/bin/gangline-rsh"


def test_isolated_pod_gets_mounts_outermost_first():
    found = plan(
        {
            "command": ["true"],
            "volumeMounts": [
                {"name": "job", "mountPath": "/a/b/c", "readOnly": True, "subPath": "x"},
                {"name": "code", "mountPath": "/a"},
            ],
        }
    )

    mounts = {
        item["target"]: (item["source"], item["inside"], item["read_only"])
        for item in found["root"]["mounts"]
    }
    assert mounts["/a"] == ("/src/code", "", False)
    assert mounts["/a/b/c"] == ("/pods/u/volumes/job", "x", True)
    assert mounts["/etc/hosts"] == ("/state/hosts/ns", "", True)
    targets = [item["target"] for item in found["root"]["mounts"]]
    assert targets.index("/a") < targets.index("/a/b/c")


def test_environment_marks_the_pod_and_finds_the_remote_shell_first():
    env = plan({"command": ["true"], "env": [{"name": "GANGLINE_POD_UID", "value": "forged"}]})["env"]

    assert env["GANGLINE_POD_UID"] == "u"
    assert env["PATH"].startswith("/run/gangline/bin:/mpi/bin:")
    assert env["PYTHONPATH"] == "/guard"
    assert env["PRTE_MCA_plm_ssh_agent"] == "/run/gangline/bin/gangline-rsh"


def test_own_variable_wins_over_the_image():
    env = plan({"command": ["true"], "env": [{"name": "PRTE_MCA_plm_ssh_agent", "value": "ssh"}]})["env"]

    assert env["PRTE_MCA_plm_ssh_agent"] == "ssh"


def test_command_and_args_are_joined_and_expanded():
    found = plan(
        {"command": ["echo", "$(WORD)"], "args": ["$$(WORD)"], "env": [{"name": "WORD", "value": "hi"}]}
    )

    assert found["argv"] == ["echo", "hi", "$(WORD)"]


def test_user_comes_from_container_then_pod_and_only_root_can_choose():
    spec = {"securityContext": {"runAsUser": 1000, "fsGroup": 2000}}
    container = {"command": ["true"], "securityContext": {"runAsUser": 1001, "runAsGroup": 5}}

    assert plan(container, spec=spec)["user"] == {"uid": 1001, "gid": 5, "groups": [2000]}
    assert plan(container, spec=spec, isolation="user")["user"] is None


def test_privileged_container_loses_its_capabilities_as_every_other():
    kept = sorted(KEPT_CAPABILITIES)
    assert plan({"command": ["true"]})["capabilities"] == kept
    assert plan({"command": ["true"], "securityContext": {"privileged": True}})["capabilities"] == kept


def test_plain_pod_is_told_where_its_service_account_lies():
    mounts = [{"name": "code", "mountPath": ACCOUNT_IN_POD, "readOnly": True}]
    container = {"command": ["cat", f"{ACCOUNT_IN_POD}/token"], "volumeMounts": mounts}

    found = plan(container, isolation="plain")

    assert found["env"]["GANGLINE_SERVICE_ACCOUNT"] == "/src/code"
    assert found["argv"] == ["cat", "/src/code/token"]


@pytest.mark.parametrize(
    ("isolation", "name", "value", "told"),
    [
        ("plain", "MASTER_ADDR", "train-master-0", "127.0.0.1"),
        ("plain", "PET_MASTER_ADDR", "train-node-0-0.train", "127.0.0.1"),
        ("plain", "PET_RDZV_ENDPOINT", "train-worker-0:23456", "127.0.0.1:23456"),
        ("plain", "PET_RDZV_ENDPOINT", "etcd.example.com:2379", "etcd.example.com:2379"),
        ("plain", "OTHER", "train-master-0", "train-master-0"),
        ("user", "MASTER_ADDR", "train-master-0", "train-master-0"),
        ("network", "MASTER_ADDR", "train-master-0", "train-master-0"),
    ],
)
def test_names_of_a_torch_job_are_addresses_where_names_lead_nowhere(isolation, name, value, told):
    container = {"command": ["go", f"$({name})"], "env": [{"name": name, "value": value}]}

    found = plan(container, isolation=isolation, labels={"training.kubeflow.org/job-name": "train"})

    assert found["env"][name] == told
    assert found["argv"] == ["go", told]


def test_worker_that_asks_for_an_ssh_server_waits_instead():
    assert plan({"command": ["/usr/sbin/sshd", "-De"]})["argv"][0] == "sh"


@pytest.mark.parametrize(
    ("container", "want"),
    [
        ({}, "no command"),
        ({"command": ["true"], "volumeMounts": [{"name": "x", "mountPath": "/x"}]}, 'name "x"'),
    ],
)
def test_container_that_can_never_start_says_why(container, want):
    with pytest.raises(StartRefusedError, match=want):
        plan(container)
