"""What a user's program needs inside a pod, and the job that is written for it."""

import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gangline.client.run.program_job import (
    ProgramRun,
    build_job,
    check_ranks,
    master_address,
    name_of_program,
)
from gangline.cluster.node.pods.container_env import expand
from gangline.errors import UserError
from gangline.launch.mpi import MpiInstallation
from gangline.launch.program import HostFolder, find_program, resolve_program

MPI = MpiInstallation("openmpi", "5.0.11", Path("/m/bin"), Path("/m/lib"), Path("/m"))


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home/project"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    return folder


def make_venv(folder, target="/usr/bin/python3"):
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (folder / "bin/python").symlink_to(target)
    return folder


def resolve(line, cwd, code=None, path="/usr/bin:/bin"):
    return resolve_program(line, cwd=cwd, code=code, environment={"PATH": path})


def test_a_virtual_environment_is_mounted_read_only_and_the_code_writable(project, tmp_path):
    venv = make_venv(tmp_path / "venv", sys.executable)
    program = resolve(["python", "train.py"], project, path=f"{venv}/bin:/usr/bin")
    assert program.line == (f"{venv}/bin/python", "train.py")
    assert program.working_dir == str(project)
    assert HostFolder(str(project), read_only=False) in program.folders
    assert HostFolder(str(venv), read_only=True) in program.folders
    assert program.environment["VIRTUAL_ENV"] == str(venv)
    assert program.environment["PATH"].startswith(f"{venv}/bin:")


def test_the_interpreter_behind_a_virtual_environment_is_mounted_too(project, tmp_path):
    base = tmp_path / "pythons/3.12"
    (base / "bin").mkdir(parents=True)
    (base / "bin/python3.12").write_text("#!/bin/sh\n")
    (base / "bin/python3.12").chmod(0o755)
    venv = make_venv(tmp_path / "venv", base / "bin/python3.12")
    program = resolve([str(venv / "bin/python"), "train.py"], project)
    assert HostFolder(str(base), read_only=True) in program.folders


def test_what_lies_inside_the_code_folder_is_mounted_once(project):
    venv = make_venv(project / ".venv")
    program = resolve([".venv/bin/python", "train.py"], project)
    assert program.line[0] == str(venv / "bin/python")
    assert program.folders == (HostFolder(str(project), read_only=False),)


def test_arguments_that_name_files_outside_the_code_are_mounted(project, tmp_path):
    data = tmp_path / "data.csv"
    data.touch()
    program = resolve(["sh", "x", "--data=../../data.csv", "--lr", "0.1", "missing.txt"], project)
    assert HostFolder(str(data), read_only=False) in program.folders
    assert program.line[1:] == ("x", "--data=../../data.csv", "--lr", "0.1", "missing.txt")


def test_relative_arguments_are_made_absolute_when_the_code_folder_is_elsewhere(project, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    program = resolve(["sh", "train.py", "--data=train.py"], project, code=code)
    assert program.working_dir == str(code)
    assert program.line[1:] == (f"{project}/train.py", f"--data={project}/train.py")


@pytest.mark.parametrize(
    ("line", "part"), [(["nonesuch"], "in no folder of your PATH"), (["./x.py"], "does not exist")]
)
def test_a_program_that_is_not_there_is_refused(project, line, part):
    with pytest.raises(UserError, match=part):
        resolve(line, project)


def test_a_script_that_is_not_there_is_refused_and_a_near_name_told(project):
    (project / "train.py").touch()
    python = Path(sys.executable).name

    with pytest.raises(UserError, match=r"trian\.py` does not exist") as caught:
        resolve([python, "trian.py"], project, path=str(Path(sys.executable).parent))

    assert caught.value.hint == "did you mean `train.py`?"


def test_a_script_that_may_not_be_executed_says_how_to_run_it(project, monkeypatch):
    monkeypatch.chdir(project)
    (project / "plain.py").touch(0o644)
    with pytest.raises(UserError, match="no permission to be executed") as caught:
        resolve(["./plain.py"], project)
    assert caught.value.hint == "chmod +x ./plain.py, or run it with an interpreter: python ./plain.py"


def test_a_missing_code_folder_is_refused(project):
    with pytest.raises(UserError, match="does not exist"):
        resolve(["sh"], project, code=project / "nowhere")


def test_a_broken_link_of_an_environment_names_its_target(project, tmp_path):
    venv = make_venv(tmp_path / "venv", tmp_path / "hidden/python3")
    with pytest.raises(UserError, match=f"{tmp_path}/hidden"):
        find_program("python", project, {"PATH": f"{venv}/bin"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_that_may_not_be_entered_is_named(project, tmp_path):
    hidden = tmp_path / "hidden"
    (hidden / "bin").mkdir(parents=True)
    (hidden / "bin/tool").touch(0o755)
    hidden.chmod(0)
    with pytest.raises(UserError, match=f"`{hidden}` cannot be entered"):
        find_program("tool", project, {"PATH": f"{hidden}/bin"})


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (["python", "src/Train_model.py", "--epochs", "3"], "train-model"),
        (["python3.11", "-u", "x.py"], "x"),
        (["python", "-m", "package.module", "a"], "module"),
        (["python", "-c", "print(1)"], "python"),
        (["./build/9solver"], "run-9solver"),
        (["___"], "run"),
        (["a" * 90], "a" * 40),
    ],
)
def test_the_job_is_named_after_the_script(line, name):
    assert name_of_program(line) == name


@pytest.mark.parametrize(("ranks", "nodes"), [(0, 1), (-1, 1), (2, 3), (2, 0), (5000, 1)])
def test_counts_that_cannot_start_are_refused(ranks, nodes):
    with pytest.raises(UserError):
        check_ranks(ranks, nodes)


def make_run(project, *, ranks, nodes):
    return ProgramRun(
        name="train",
        namespace="default",
        ranks=ranks,
        nodes=nodes,
        program=resolve(["sh", "-c", "true"], project),
        environment={"SEED": "1"},
        master_addr=master_address("train", "default", nodes, names_resolve=True),
        master_port=20007,
    )


def test_in_the_users_session_one_pod_starts_the_ranks_beside_itself(project):
    run = replace(make_run(project, ranks=4, nodes=1), session="machine", gpus_per_rank=2, environment={})
    spec = build_job(run, MPI)["spec"]

    assert list(spec["mpiReplicaSpecs"]) == ["Launcher"]
    assert (spec["slotsPerWorker"], spec["runLauncherAsWorker"]) == (4, True)
    template = spec["mpiReplicaSpecs"]["Launcher"]["template"]
    assert template["metadata"]["annotations"]["gangline.dev/user-session"] == "machine"
    container = template["spec"]["containers"][0]
    assert "localhost:4" in container["command"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert "volumes" not in template["spec"]


def test_on_several_nodes_every_pod_is_in_the_users_session(project):
    run = replace(make_run(project, ranks=4, nodes=2), session="node", environment={})
    roles = build_job(run, MPI)["spec"]["mpiReplicaSpecs"]

    for role in roles.values():
        assert role["template"]["metadata"]["annotations"]["gangline.dev/user-session"] == "node"
    assert roles["Worker"]["template"]["spec"]["volumes"] == []


def test_one_pod_takes_all_ranks_and_meets_on_loopback(project):
    job = build_job(make_run(project, ranks=4, nodes=1), MPI)
    spec = job["spec"]
    assert (spec["slotsPerWorker"], spec["mpiReplicaSpecs"]["Worker"]["replicas"]) == (4, 1)
    command = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[:3] == ["mpirun", "-n", "4"]
    assert "MASTER_ADDR=127.0.0.1" in command
    assert "MASTER_PORT=20007" in command
    assert "SEED=1" in command
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running", "backoffLimit": 0}


def test_dollars_of_a_program_and_its_variables_reach_it_as_they_are(project):
    run = make_run(project, ranks=1, nodes=1)
    line = ("sh", "-c", "echo $$ $(hostname) $(SEED)", "$HOME", "x$")
    run = replace(run, program=run.program._replace(line=line), environment={"SEED": "a$$b"})
    launcher = build_job(run, MPI)["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]

    received = [expand(word, {"SEED": "replaced"}) for word in launcher["command"]]

    assert tuple(received[-5:]) == line
    assert "SEED=a$$b" in received


def test_each_worker_has_a_node_of_its_own_where_there_are_as_many(project):
    worker = build_job(make_run(project, ranks=4, nodes=2), MPI)["spec"]["mpiReplicaSpecs"]["Worker"]
    (spread,) = worker["template"]["spec"]["topologySpreadConstraints"]

    assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
    assert spread["whenUnsatisfiable"] == "DoNotSchedule"  # gangs pass over a preference


def test_ranks_are_spread_over_the_nodes_with_slots_rounded_up(project):
    job = build_job(make_run(project, ranks=5, nodes=2), MPI)
    assert job["spec"]["slotsPerWorker"] == 3
    assert job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    command = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert "MASTER_ADDR=train-worker-0.train.default.svc" in command


def test_the_folders_become_volumes_of_the_workers(project):
    job = build_job(make_run(project, ranks=1, nodes=1), MPI)
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    assert worker["volumes"] == [{"name": "host-0", "hostPath": {"path": str(project)}}]
    assert worker["containers"][0]["volumeMounts"] == [{"name": "host-0", "mountPath": str(project)}]


def test_without_names_of_pods_ranks_meet_on_loopback():
    assert master_address("train", "default", 2, names_resolve=False) == "127.0.0.1"
