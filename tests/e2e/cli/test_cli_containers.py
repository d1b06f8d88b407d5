"""Real images in real containers: containerd unpacks them, runc runs them in the pods of one machine.

In scope: what a user sees of jobs, failures, deletion, a killed node agent, pull policies, podman. Out of
scope: docker, whose answers unit tests have. Run by ``make test-containers``, skipped where something is
missing.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from debian import CannotMake
from mpi_images import image_name, mpi_image

from gangline.cluster.paths import ClusterPaths

pytestmark = [pytest.mark.containers, pytest.mark.timeout(300)]

IMAGE = image_name("openmpi")
DERIVED = "localhost/gangline-tests-derived:1"


def job(name, *containers, more=""):
    """Return a Job that runs its containers once."""
    listed = "".join(f"      - {json.dumps(container)}\n" for container in containers)
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  backoffLimit: 0\n"
        f"  template:\n    spec:\n      restartPolicy: Never\n      terminationGracePeriodSeconds: 1\n{more}"
        f"      containers:\n{listed}"
    )


def container(*command, image=IMAGE, **more):
    return {"name": "main", "image": image, **({"command": list(command)} if command else {}), **more}


def mpijob(name, version, launcher, worker):
    """Return an MPIJob of one rank in each of two workers."""
    roles = {
        "Launcher": {
            "replicas": 1,
            "restartPolicy": "Never",
            "template": {"spec": {"containers": [container(*launcher)]}},
        },
        "Worker": {"replicas": 2, "template": {"spec": {"containers": [container(*worker)]}}},
    }
    limit = {"backoffLimit": 0}
    spec = {"slotsPerWorker": 1, "mpiReplicaSpecs": roles}
    spec |= {"runPolicy": limit} if version == "v2beta1" else limit
    return json.dumps(
        {"apiVersion": f"kubeflow.org/{version}", "kind": "MPIJob", "metadata": {"name": name}, "spec": spec}
    )


def derive(source, out, name, **config):
    """Write an image that differs from another one in its configuration."""
    with tarfile.open(source) as tar, tarfile.open(out, "w") as made:
        manifest = json.load(tar.extractfile("manifest.json"))[0]
        whole = json.load(tar.extractfile(manifest["Config"]))
        whole["config"] |= config
        changed = {manifest["Config"]: whole, "manifest.json": [manifest | {"RepoTags": [name]}]}
        for member in tar:
            if member.name in changed:
                data = json.dumps(changed[member.name]).encode()
                member.size = len(data)
                made.addfile(member, io.BytesIO(data))
            else:
                made.addfile(member, tar.extractfile(member))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Return the archives to load."""
    if os.geteuid() != 0:
        pytest.skip("containers need root")
    missing = [program for program in ("containerd", "ctr", "runc") if not shutil.which(program)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    try:
        archive = mpi_image("openmpi")
    except CannotMake as error:
        pytest.skip(str(error))
    derived = tmp_path_factory.mktemp("images") / "derived.tar"
    settings = {
        "Entrypoint": ["/bin/sh", "-c", 'echo "$0 $WORD $(pwd) $(id -un) $HOME"'],
        "Cmd": ["from-cmd"],
        "Env": ["PATH=/usr/bin:/bin", "WORD=from-env"],
        "WorkingDir": "/usr/share",
        "User": "mpiuser",
    }
    derive(archive, derived, DERIVED, **settings)
    return [archive, derived]


@pytest.fixture(scope="module")
def home():
    folder = Path(tempfile.mkdtemp(prefix="gangline-containers-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def containers(images, home, commands_of):
    """Commands on a cluster with containerd and the images in it."""
    gangline = commands_of(home)
    try:
        started = gangline("up", "--isolation", "network", "--runtime", "containerd")
        assert started.returncode == 0, started.stderr
        load = started.stderr.partition("`ctr ")[2].partition(" FILE`")[0].split()
        for archive in images:
            subprocess.run(["ctr", *load, str(archive)], check=True, capture_output=True)
        yield gangline
    finally:
        gangline("down", "--purge")


@pytest.fixture
def run(containers, tmp_path):
    """Run a manifest to its end."""

    def run(text):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return containers("run", str(path))

    return run


def paths_of(home):
    return ClusterPaths("default", home / "default")


def left_of_pods(home):
    """Return what pods have on the machine: containers, control groups, mounts, links, files."""
    paths = paths_of(home)
    state = Path(tempfile.gettempdir()) / f"gangline-{os.getuid()}" / paths.cluster_id / "oci"
    groups = Path("/sys/fs/cgroup")
    found = [*state.iterdir()] if state.is_dir() else []
    found += [*groups.glob(f"gangline-{paths.cluster_id}*"), *groups.glob(f"*/gangline-{paths.cluster_id}*")]
    found += [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line]
    found += list(Path("/sys/class/net").glob(f"gl{paths.cluster_id[:5]}*"))
    return {str(one) for one in [*found, *paths.pods.iterdir()]}


def test_a_job_sees_the_files_of_its_image_and_the_hosts_of_its_pod(run):
    script = (
        "cat /etc/hostname; ls -d /opt/pi.py; test -e /work || test -e /farm || echo no files of the machine"
    )

    ended = run(job("files", container("sh", "-c", script)))

    assert ended.returncode == 0, ended.stderr
    name, *rest = ended.stdout.splitlines()
    assert name.startswith("files-")
    assert rest == ["/opt/pi.py", "no files of the machine"]
    assert f"image {IMAGE} served by containerd" in ended.stderr.splitlines()
    assert ended.stderr.splitlines()[-1].endswith(f"(exit code 0); image {IMAGE} served by containerd")


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, "from-cmd from-env /usr/share mpiuser /home/mpiuser"),
        ({"args": ["arg"]}, "arg from-env /usr/share mpiuser /home/mpiuser"),
        ({"workingDir": "/opt", "securityContext": {"runAsUser": 0}}, "from-cmd from-env /opt root /root"),
        ({"command": ["sh", "-c", "echo $WORD"], "env": [{"name": "WORD", "value": "own"}]}, "own"),
    ],
)
def test_entrypoint_environment_folder_and_user_come_from_the_image(run, fields, want):
    ended = run(job("config", {"name": "main", "image": DERIVED, **fields}))

    assert (ended.stdout.strip(), ended.returncode) == (want, 0), ended.stderr


def test_the_exit_code_is_the_programs(run):
    ended = run(job("fails", container("sh", "-c", "echo to stderr >&2; exit 42")))

    assert ended.returncode == 42
    assert f"image {IMAGE} served by containerd" in ended.stderr


def test_a_program_that_is_not_in_the_image_is_named(run):
    ended = run(job("typo", container("pyhton3")))

    assert 'StartError: exec: "pyhton3": executable file not found in $PATH' in ended.stderr
    assert ended.returncode != 0


def test_memory_beyond_the_limit_ends_the_container(run):
    eat = "data = bytearray(512 << 20)"
    limits = {"limits": {"memory": "64Mi"}}

    ended = run(job("greedy", container("python3", "-c", eat, resources=limits)))

    assert ended.returncode == 137
    assert "used more memory than its limit allows (OOMKilled)" in ended.stderr


def test_an_mpijob_starts_its_ranks_through_the_images_own_ssh_server(run):
    launcher = ("mpirun", "--allow-run-as-root", "-n", "2", "python3", "/opt/pi.py")

    ended = run(mpijob("ssh", "v2beta1", launcher, ("/usr/sbin/sshd", "-De")))

    assert ended.returncode == 0, ended.stderr
    assert "Workers: 2 on 2 hosts" in ended.stdout
    assert "pi is approximately 3.14" in ended.stdout


def test_a_worker_whose_rank_fails_gives_its_exit_code(run):
    # Not at once: Open MPI 5.0.11 may hang when ranks of two hosts end before it knows that they run.
    program = "from mpi4py.MPI import COMM_WORLD as c; c.barrier(); raise SystemExit(c.rank * 7)"
    launcher = ("mpirun", "--allow-run-as-root", "-n", "2", "python3", "-c", program)

    ended = run(mpijob("breaks", "v2beta1", launcher, ("/usr/sbin/sshd", "-De")))

    assert ended.returncode == 7, ended.stderr


def test_a_job_of_an_old_version_reaches_workers_without_an_ssh_server(run):
    launcher = ("mpirun", "--allow-run-as-root", "-n", "2", "python3", "/opt/pi.py")

    ended = run(mpijob("old", "v1alpha2", launcher, ()))

    assert ended.returncode == 0, ended.stderr
    assert "Workers: 2 on 2 hosts" in ended.stdout


def test_a_volume_in_memory_takes_the_place_of_shared_memory(run):
    volume = "      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 3Mi}}]\n"
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]

    ended = run(
        job("shm", container("sh", "-c", "df -k /dev/shm | tail -1", volumeMounts=mounts), more=volume)
    )

    assert ended.stdout.split()[1] == "3072", ended.stderr


def test_what_runs_in_a_container_besides_is_held_to_its_limits(run):
    check = "grep -q gangline /proc/self/cgroup && touch /tmp/ready"
    probe = {"exec": {"command": ["sh", "-c", check]}, "periodSeconds": 1}
    wait = "until test -e /tmp/ready; do sleep 0.1; done; echo inside"

    ended = run(job("probed", container("sh", "-c", wait, readinessProbe=probe)))

    assert ended.stdout == "inside\n", ended.stderr


def test_nothing_is_left_of_a_job_that_was_deleted(containers, home, tmp_path, until):
    before = left_of_pods(home)
    path = tmp_path / "long.yaml"
    path.write_text(job("long", container("sh", "-c", "echo up; (sleep 1000 &) ; sleep 1000")))
    process = containers.start("run", str(path))
    assert process.stdout.readline() == "up\n"
    assert left_of_pods(home) - before

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    until(lambda: left_of_pods(home) <= before, "the end of all that the pod had")


def test_a_killed_node_agent_adopts_its_containers(containers, home, tmp_path, until):
    go_on = "echo first; until test -e /tmp/go; do sleep 0.1; done; echo last; exit 5"
    path = tmp_path / "adopted.yaml"
    path.write_text(job("adopted", container("sh", "-c", go_on)))
    process = containers.start("run", str(path))
    assert process.stdout.readline() == "first\n"
    agent = json.loads((home / "default" / "agent.json").read_text())["pid"]

    os.kill(agent, signal.SIGKILL)
    report = home / "default" / "agent.json"
    until(lambda: json.loads(report.read_text())["pid"] != agent, "another agent")
    assert process.poll() is None
    records = [path.read_text() for path in (home / "default" / "pods").glob("*/pod.json") if path.exists()]
    uid = next(one["uid"] for one in map(json.loads, records) if one["name"].startswith("adopted"))
    state = json.loads((home / "default" / "pods" / uid / "state.json").read_text())
    pid = state["containers"]["main"]["pid"]
    Path(f"/proc/{pid}/root/tmp/go").touch()
    out, err = process.communicate(timeout=60)

    assert process.returncode == 5, err
    assert out == "last\n"


@pytest.mark.parametrize(
    ("image", "policy", "reason"),
    [
        ("localhost/gangline-tests-nobody:1", "IfNotPresent", "ErrImagePull"),
        (IMAGE, "Always", "ErrImagePull"),
        ("localhost/gangline-tests-nobody:1", "Never", "ErrImageNeverPull"),
    ],
)
def test_an_image_that_cannot_be_had_ends_the_run_with_the_reason(run, image, policy, reason):
    ended = run(job("nobody", container("true", image=image, imagePullPolicy=policy)))

    assert ended.returncode == 4
    assert f"container main: {reason}: " in ended.stderr
    assert image in ended.stderr


def test_podman_serves_images_as_well(images, commands_of):
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    subprocess.run(["podman", "load", "-q", "-i", str(images[1])], check=True, capture_output=True)
    folder = Path(tempfile.mkdtemp(prefix="gangline-podman-"))
    gangline = commands_of(folder)
    path = folder / "job.yaml"
    path.write_text(job("podman", {"name": "main", "image": DERIVED}))
    try:
        ended = gangline("run", "--runtime", "podman", str(path))

        assert ended.stdout == "from-cmd from-env /usr/share mpiuser /home/mpiuser\n", ended.stderr
        assert f"image {DERIVED} served by podman" in ended.stderr
    finally:
        gangline("down", "--purge")
        subprocess.run(["podman", "rmi", "-f", DERIVED], check=False, capture_output=True)
        shutil.rmtree(folder)
