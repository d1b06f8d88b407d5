"""`gangline submit mpijob`: arena's flags become an MPIJob that is really a gang."""

from pathlib import Path
from typing import Any

import click
import pytest

from gangline.api.mpijob_reading import read_mpijob
from gangline.api.training.kinds import training_kind
from gangline.api.training.reading import read_training_job
from gangline.cli.options.job_types import qualified
from gangline.cli.submit.command import command, no_open_node, read_config_files
from gangline.cli.submit.job import build_objects
from gangline.cli.submit.submission import RoleFlags, Submission, read_toleration
from gangline.client.target import ClusterTarget
from gangline.errors import UserError


def job(**flags: Any) -> dict[str, Any]:
    values = {"name": "vgg", "namespace": "team", "image": "i", "command": "mpirun -np 4 x", **flags}
    objects = build_objects(Submission(**values))
    assert read_mpijob(objects[-1]).errors == []
    return objects[-1]


def template(value: dict[str, Any], role: str) -> dict[str, Any]:
    return dict(value["spec"]["mpiReplicaSpecs"][role]["template"])


def container(value: dict[str, Any], role: str) -> dict[str, Any]:
    [only] = template(value, role)["spec"]["containers"]
    return dict(only)


def test_the_line_of_the_topology_guide_becomes_a_gang_of_all_pods():
    value = job(gpus=1, workers=4, gang=True, gpu_topology=True)

    assert value["spec"]["runPolicy"]["schedulingPolicy"] == {"minAvailable": 5}
    assert value["spec"]["runPolicy"]["cleanPodPolicy"] == "All"
    assert value["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 4
    labels = template(value, "Worker")["metadata"]["labels"]
    assert labels["gpu-topology"] == "vgg"
    assert labels["gpu-topology-replica"] == "4"
    assert labels["pod-group.scheduling.sigs.k8s.io/name"] == "mpijob-vgg"
    assert labels["pod-group.scheduling.sigs.k8s.io/min-available"] == "5"
    assert container(value, "Worker")["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "resources" not in container(value, "Launcher")
    assert container(value, "Launcher")["command"] == ["sh", "-c", "mpirun -np 4 x"]


def test_topology_keeps_shared_memory_and_leaves_the_network_alone():
    spec = template(job(gpus=1, gpu_topology=True), "Worker")["spec"]

    assert {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}} in spec["volumes"]
    assert "hostNetwork" not in spec
    assert spec["nodeSelector"] == {"ack.node.gpu.schedule": "topology"}
    asked = template(job(gpus=1, host_network=True), "Worker")["spec"]
    assert (asked["hostNetwork"], asked["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


@pytest.mark.parametrize(
    ("image", "path"),
    [
        ("gangline/base", "/home/mpiuser/.ssh"),
        ("registry.example.com:5000/ml/gangline/base:0.1.0", "/home/mpiuser/.ssh"),
        ("gangline/base@sha256:00", "/home/mpiuser/.ssh"),
        ("others-gangline/base", None),
        ("gangline/base-of-mine", None),
    ],
)
def test_our_own_image_finds_its_keys_where_its_user_reads_them(image: str, path: str | None):
    assert job(image=image)["spec"].get("sshAuthMountPath") == path


def test_labels_by_which_arena_finds_the_pods_of_a_job():
    labels = template(job(labels=("team=vision",)), "Launcher")["metadata"]["labels"]

    assert labels["release"] == "vgg"
    assert labels["app"] == "mpijob"
    assert labels["group_name"] == "kubeflow.org"
    assert labels["mpi_role_type"] == "launcher"
    assert labels["team"] == "vision"
    assert job(gpus=2, workers=3)["metadata"]["annotations"] == {"requestGPUsOfJobOwner": "6"}


def test_devices_count_without_gpus_too():
    resources = container(job(devices=("amd.com/gpu=2",)), "Worker")["resources"]

    assert resources == {"requests": {"amd.com/gpu": "2"}, "limits": {"amd.com/gpu": "2"}}


def test_without_gpus_none_is_seen():
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container(job(), "Worker")["env"]


def test_data_is_mounted_in_workers_and_on_request_in_the_launcher():
    value = job(claims=("images:/data",), host_folders=("/mnt/x:/x",))
    both = job(claims=("images:/data",), mounts_on_launcher=True)

    assert [mount["mountPath"] for mount in container(value, "Worker")["volumeMounts"]] == [
        "/dev/shm",
        "/data",
        "/x",
    ]
    assert [mount["mountPath"] for mount in container(value, "Launcher")["volumeMounts"]] == ["/dev/shm"]
    assert len(container(both, "Launcher")["volumeMounts"]) == 2


def test_files_of_one_folder_share_a_config_map(tmp_path: Path):
    (tmp_path / "a.conf").write_text("1")
    (tmp_path / "b.conf").write_text("2")
    files = read_config_files((f"{tmp_path}/a.conf:/etc/x/a.conf", f"{tmp_path}/b.conf:/etc/x/b.conf"))

    config_map, value = build_objects(
        Submission(name="vgg", namespace="team", image="i", command="c", config_files=files)
    )

    assert config_map["data"] == {"a.conf": "1", "b.conf": "2"}
    assert {"name": "config-0", "mountPath": "/etc/x"} in container(value, "Worker")["volumeMounts"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("all", {"operator": "Exists"}),
        ("k=v:NoSchedule,Equal", {"key": "k", "value": "v", "effect": "NoSchedule", "operator": "Equal"}),
        ("k:NoExecute,Exists", {"key": "k", "effect": "NoExecute", "operator": "Exists"}),
    ],
)
def test_tolerations_are_read(text, wanted):
    assert read_toleration(text) == wanted


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"name": "Vgg_16"}, "--name must be"),
        ({"name": "v" * 50}, "at most 49"),
        ({"workers": 0}, "--workers must be at least 1"),
        ({"gpu_topology": True}, "--gpus is 0"),
        ({"tolerations": ("nonsense",)}, "--toleration nonsense: cannot be read"),
        ({"tolerations": ("k=v:Sometimes,Equal",)}, "cannot be read"),
        ({"claims": ("images",)}, "--data images: write CLAIM:PATH"),
        ({"memory": "much"}, "--memory must be a quantity"),
        ({"env": ("X",)}, "--env X: write KEY=VALUE"),
        ({"devices": ("amd.com/gpu=some",)}, "write NAME=COUNT"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_flag(flags, words):
    with pytest.raises(UserError, match=words):
        job(**flags)


def run(*words: str) -> None:
    command.main(args=list(words), prog_name="submit", standalone_mode=False)


BASE = ("mpi", "--name=vgg", "--image=gangline/base", "--dry-run")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))


def test_flags_are_written_as_arena_writes_them(capsys):
    run(*BASE, "--gang=true", "--rdma=false", "--gpus=1", "mpirun", "-np", "1", "x")
    out = capsys.readouterr().out

    assert "minAvailable: 2" in out
    assert "rdma" not in out
    assert "- mpirun -np 1 x" in out


@pytest.mark.parametrize(
    "command",
    [
        ("mpirun", "x", "--name", "y"),
        ("mpirun x", "--epochs", "3"),
        ("python", "train.py", "--lr", "0.1", "--gang=true"),
        ("python", "train.py", "--logdir=/logs", "--tensorboard"),
        ("python", "train.py", "--", "--rdma=false"),
    ],
)
def test_words_that_are_the_programs_stay_with_it(command, capsys):
    run(*BASE, *command)

    assert f"- {' '.join(command)}" in capsys.readouterr().out


def test_a_value_in_front_of_the_command_is_not_its_first_word(capsys):
    run(*BASE, "--workers", "2", "-e", "A=1", "--gang=true", "python", "--gang=false")
    out = capsys.readouterr().out

    assert "minAvailable: 3" in out
    assert "- python --gang=false" in out


def test_a_flag_behind_the_first_word_is_said_to_be_the_programs(capsys):
    run(*BASE, "python", "train.py", "--gpus=1")

    assert "note: `--gpus=1` stands behind `python`, so it is the program's" in capsys.readouterr().err


def test_words_that_the_shell_will_split_again_are_pointed_out(capsys):
    run(*BASE, "python", "-c", "print( 1 )")

    assert "quote the whole command" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("etjob", "--name=x"), "`submit etjob` is not served"),
        (("tf", "--name=x", "--role-sequence=w,p", "x"), "--role-sequence is not served"),
        (("tf", "--name=x", "--workerImage=i", "--ps=1", "--dry-run", "x"), "no image"),
        (("tf", "--name=1x", "--image=i", "--dry-run", "x"), "must begin with a letter"),
        (("tf", "--name=x", "--image=i", "--psCpu=much", "--dry-run", "x"), "--ps-cpu must be a quantity"),
        (("pytorch", "--name=x", "--image=i", "--running-timeout=soon", "x"), "--running-timeout soon"),
        ((*BASE, "--tensorboard", "x"), "--tensorboard is not served"),
        ((*BASE, "--sync-mode=git", "x"), "--sync-mode is not served"),
        ((*BASE, "--gang=maybe", "x"), "write --gang=true or --gang=false"),
        ((*BASE, "--data=c:/d", "x"), "--data: the one-machine cluster has no claims"),
        ((*BASE, "--rdma=true", "x"), "--rdma: the one-machine cluster has no RDMA devices"),
        ((*BASE, "--hostIPC", "x"), "--hostIPC: the one-machine cluster has no host IPC"),
        (BASE, "no command"),
        ((*BASE, "mpirun -np 1 x", "--dry-run"), "--dry-run stands behind the command"),
        ((*BASE, "mpirun -np 1 x", "--cluster=sim"), "--cluster stands behind the command"),
    ],
)
def test_what_is_not_served_is_refused_by_name(words, message):
    with pytest.raises(UserError, match=message):
        run(*words)


def test_an_unknown_flag_is_wrong_use():
    with pytest.raises(click.UsageError):
        run(*BASE, "--nothing", "x")


def test_a_type_qualifies_a_name():
    assert qualified("vgg", "MPIJob") == "mpijob/vgg"
    assert qualified("mpijob/vgg", "MPIJob") == "mpijob/vgg"
    with pytest.raises(UserError, match="is no MPIJob"):
        qualified("job/vgg", "MPIJob")


def gpu_node(name: str, gpus: int = 8, **labels: str) -> dict[str, Any]:
    labels = {key.replace("_", "."): value for key, value in labels.items()}
    amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "4"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


def test_a_missing_label_comes_with_the_line_that_sets_it():
    nodes = [gpu_node("b"), gpu_node("a"), gpu_node("0", gpus=0)]
    assert no_open_node(nodes, ClusterTarget()) == (
        "no node carries ack.node.gpu.schedule=topology, so the job will wait; `kubectl --kubeconfig "
        "$(gangline kubeconfig --path) label node a ack.node.gpu.schedule=topology` opens one"
    )
    assert "`kubectl --context prod label node a ack" in no_open_node(nodes, ClusterTarget(context="prod"))
    assert no_open_node([*nodes, gpu_node("c", ack_node_gpu_schedule="topology")], ClusterTarget()) == ""


def test_nodes_without_gpus_are_said_with_a_way_to_simulated_ones():
    message = no_open_node([gpu_node("a", gpus=0)], ClusterTarget())
    assert "no node has GPUs; `gangline up --simulate-gpus 8" in message
    assert no_open_node([], ClusterTarget(context="prod")).endswith("and no node has GPUs")


def training_job(kind: str, **flags: Any) -> dict[str, Any]:
    values = {"name": "cnn", "namespace": "team", "image": "i", "command": "python x", "kind": kind, **flags}
    [value] = build_objects(Submission(**values))
    found = training_kind(kind)
    assert found is not None
    assert read_training_job(found, value).errors == []
    return value


def test_the_workers_of_a_pytorchjob_are_counted_with_its_master():
    value = training_job("PyTorchJob", workers=4, gpus=2, gang=True, nproc_per_node="2")
    roles = value["spec"]["pytorchReplicaSpecs"]

    assert {role: (one["replicas"], one["restartPolicy"]) for role, one in roles.items()} == {
        "Master": (1, "Never"),
        "Worker": (3, "OnFailure"),
    }
    assert value["spec"]["nprocPerNode"] == "2"
    assert value["spec"]["runPolicy"]["schedulingPolicy"] == {"minAvailable": 4}
    labels = roles["Master"]["template"]["metadata"]["labels"]
    assert labels["pod-group.scheduling.sigs.k8s.io/name"] == "pytorchjob-cnn"
    assert value["metadata"]["annotations"] == {"requestGPUsOfJobOwner": "8"}
    for role in roles.values():
        [one] = role["template"]["spec"]["containers"]
        assert (one["name"], one["command"]) == ("pytorch", ["sh", "-c", "python x"])
        assert one["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_a_pytorchjob_of_one_worker_is_its_master():
    assert list(training_job("PyTorchJob")["spec"]["pytorchReplicaSpecs"]) == ["Master"]


def test_roles_of_a_tfjob_ask_for_what_is_theirs():
    value = training_job(
        "TFJob",
        workers=2,
        ps=1,
        gpus=1,
        has_chief=True,
        has_evaluator=True,
        selectors=("zone=a",),
        success_policy="AllWorkers",
        roles={
            "ps": RoleFlags(image="p", cpu="2", cpu_limit="4", port=2300, selectors=("disk=fast",)),
            "worker": RoleFlags(memory="8Gi"),
        },
    )
    roles = value["spec"]["tfReplicaSpecs"]

    assert {role: one["replicas"] for role, one in roles.items()} == {
        "PS": 1,
        "Worker": 2,
        "Chief": 1,
        "Evaluator": 1,
    }
    [ps] = roles["PS"]["template"]["spec"]["containers"]
    assert (ps["name"], ps["image"]) == ("tensorflow", "p")
    assert ps["resources"] == {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    assert ps["ports"] == [{"name": "tfjob-port", "containerPort": 2300}]
    assert roles["PS"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}
    [worker] = roles["Worker"]["template"]["spec"]["containers"]
    assert worker["resources"]["requests"] == {"memory": "8Gi", "nvidia.com/gpu": "1"}
    assert roles["Worker"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}
    assert value["spec"]["successPolicy"] == "AllWorkers"
    assert value["metadata"]["annotations"] == {"requestGPUsOfJobOwner": "4"}


def test_a_single_worker_of_a_tfjob_is_its_chief():
    value = training_job("TFJob", gpus=1, roles={"worker": RoleFlags(image="w")})

    assert list(value["spec"]["tfReplicaSpecs"]) == ["Chief"]
    [one] = value["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"]
    assert (one["image"], one["resources"]["limits"]) == ("w", {"nvidia.com/gpu": "1"})


def test_a_gang_by_the_wires_of_any_kind_is_of_those_with_gpus():
    value = training_job("TFJob", workers=2, ps=1, gpus=1, gpu_topology=True)
    roles = value["spec"]["tfReplicaSpecs"]

    assert roles["Worker"]["template"]["metadata"]["labels"]["gpu-topology-replica"] == "2"
    assert "gpu-topology" not in roles["PS"]["template"]["metadata"]["labels"]


def test_durations_and_the_old_spelling_of_flags(capsys):
    run(
        *("tf", "--name=cnn", "--image=gangline/base", "--workers=2", "--psImage", "gangline/base", "--ps=1"),
        *(
            "--running-timeout=1h30m",
            "--ttl-after-finished=1d",
            "--dry-run",
            "python",
            "train.py",
            "--psImage",
        ),
    )
    out = capsys.readouterr().out

    assert "activeDeadlineSeconds: 5400" in out
    assert "ttlSecondsAfterFinished: 86400" in out
    assert "cleanPodPolicy: Running" in out
    assert "- python train.py --psImage" in out
