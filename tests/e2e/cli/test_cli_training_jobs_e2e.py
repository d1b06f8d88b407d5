"""PyTorchJobs and TFJobs as a user has them: run, looked at, read, deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

SHOW = "import os; [print(f'{n}={os.environ[n]}') for n in sorted(os.environ) if n.startswith({names})]"


def manifest(
    folder: Path,
    kind: str,
    name: str,
    program: str,
    roles: dict[str, int],
    *,
    version: str = "v1",
    **spec: object,
) -> str:
    """Write a job of which every replica runs a Python program; return its file."""
    field, container = {
        "PyTorchJob": ("pytorchReplicaSpecs", "pytorch"),
        "TFJob": ("tfReplicaSpecs", "tensorflow"),
    }[kind]
    main = {"name": container, "image": "gangline/base", "command": ["python3", "-u", "-c", program]}
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [main]}}
    specs = {role: {"replicas": count, "template": template} for role, count in roles.items()}
    document = {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {field: specs, **spec},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_pytorchjob_is_run_listed_shown_read_and_deleted(gangline, tmp_path):
    program = SHOW.replace("{names}", "('MASTER_', 'PET_', 'RANK', 'WORLD_')")
    file = manifest(tmp_path, "PyTorchJob", "pt", program, {"Master": 1, "Worker": 1})

    ran = gangline("run", file)

    assert ran.returncode == 0, ran.stderr
    common = (
        "MASTER_ADDR=pt-master-0\nMASTER_PORT=23456\nPET_MASTER_ADDR=pt-master-0\nPET_MASTER_PORT=23456\n"
        "PET_NNODES=2\nPET_NODE_RANK={rank}\nPET_NPROC_PER_NODE=auto\nRANK={rank}\nWORLD_SIZE=2\n"
    )
    assert ran.stdout == common.format(rank=0)
    assert gangline("logs", "pt", "-i", "worker-0").stdout == common.format(rank=1)
    listed = [line.split()[:3] for line in gangline("list", "--type", "pytorchjob").stdout.splitlines()]
    assert ["pt", "SUCCEEDED", "PYTORCHJOB"] in listed
    report = json.loads(gangline("get", "pytorchjob/pt", "-o", "json").stdout)
    assert (report["chiefName"], [one["name"] for one in report["instances"]]) == (
        "pt-master-0",
        ["pt-master-0", "pt-worker-0"],
    )
    assert gangline("delete", "pt").returncode == 0
    assert "pt" not in gangline("list", "--type", "pytorchjob", "-o", "name").stdout


def test_a_tfjob_finds_its_replicas_and_leaves_no_server_running(gangline, tmp_path):
    program = (
        "import json, os, socket, time\n"
        "config = json.loads(os.environ['TF_CONFIG'])\n"
        # One that has ended has no address any more: only the first worker ends.
        "if (config['task']['type'], config['task']['index']) != ('worker', 0): time.sleep(600)\n"
        "for role, hosts in config['cluster'].items():\n"
        "    for host in hosts:\n"
        "        for _ in range(300):\n"
        "            try: socket.gethostbyname(host.partition(':')[0]); break\n"
        "            except OSError: time.sleep(0.1)\n"
        "        else: raise SystemExit(f'{host} has no address')\n"
        "        print(role, host)\n"
    )
    file = manifest(
        tmp_path, "TFJob", "tf", program, {"PS": 1, "Worker": 2}, runPolicy={"cleanPodPolicy": "Running"}
    )

    ran = gangline("run", file)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "ps tf-ps-0.default.svc:2222",
        "worker tf-worker-0.default.svc:2222",
        "worker tf-worker-1.default.svc:2222",
    ]


def test_a_failed_replica_ends_the_command_with_its_code(gangline, tmp_path):
    program = "import os, sys; print('rank', os.environ['RANK']); sys.exit(3)"
    file = manifest(tmp_path, "PyTorchJob", "bad", program, {"Master": 1}, runPolicy={"backoffLimit": 0})
    text = yaml.safe_load(Path(file).read_text())
    text["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = "ExitCode"
    Path(file).write_text(yaml.safe_dump(text))

    ran = gangline("run", file)

    assert ran.returncode == 3
    assert ran.stdout == "rank 0\n"


def test_a_job_without_a_master_has_the_log_of_worker_0(gangline, tmp_path):
    program = "import socket; print('on', socket.gethostname())"
    file = manifest(tmp_path, "PyTorchJob", "alone", program, {"Worker": 2})

    ran = gangline("run", file)

    assert (ran.returncode, ran.stdout) == (0, "on alone-worker-0\n"), ran.stderr


def test_a_trainjob_of_mpi_has_ranks_on_its_launcher_and_hosts(gangline, tmp_path):
    program = (
        "from mpi4py import MPI; import socket; ranks = MPI.COMM_WORLD; "
        "names = ranks.gather(socket.gethostname()); ranks.rank or print(*names)"
    )
    trainer = {"numNodes": 3, "numProcPerNode": 2, "command": ["mpirun", "python3", "-c", program]}
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "mpi"},
        "spec": {"runtimeRef": {"name": "mpi-distributed"}, "trainer": trainer},
    }
    path = tmp_path / "mpi.yaml"
    path.write_text(yaml.safe_dump(document))

    ran = gangline("run", str(path))

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == sorted(["mpi-launcher-0-0", "mpi-node-0-0", "mpi-node-0-1"] * 2)
    report = json.loads(gangline("get", "trainjob/mpi", "-o", "json").stdout)
    assert (report["status"], report["chiefName"]) == ("SUCCEEDED", "mpi-launcher-0-0")


@pytest.mark.parametrize("kind", ["trainjob", "pytorchjob", "mpijob"])
@pytest.mark.parametrize("world", [[], ["--isolated"]])
def test_a_program_of_this_machine_runs_as_a_job_of_each_kind(gangline, kind, world):
    program = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
    name = f"own-{kind}"

    ran = gangline("run", "-n", "2", "--kind", kind, *world, "--name", name, "--", "python3", "-c", program)

    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["[1] rank 1 of 2", "rank 0 of 2"]
    listed = [line.split()[:3] for line in gangline("list", "--type", kind).stdout.splitlines()]
    assert [name, "SUCCEEDED", kind.upper()] in listed
    assert "rank 1 of 2" in gangline("logs", name).stdout
    assert gangline("delete", f"{kind}/{name}").returncode == 0
    assert "rank 1 of 2" in gangline("logs", name).stdout, "the run stays"


def test_a_trainjob_runs_and_one_whose_runtime_is_missing_says_so(gangline, tmp_path, until):
    def file(name: str, runtime: str) -> str:
        trainer = {"numNodes": 2, "image": "gangline/base", "command": ["sh", "-c", "echo $PET_NODE_RANK"]}
        document = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name},
            "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer},
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    ran = gangline("run", file("node", "torch-distributed"))

    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran.stderr
    assert gangline("logs", "node", "-i", "node-0-1").stdout == "1\n"
    assert gangline("apply", "-f", file("lone", "none")).returncode == 0
    until(
        lambda: (
            "there is no ClusterTrainingRuntime `none`"
            in " ".join(gangline("explain", "trainjob/lone").stdout.split())
        ),
        "the missing runtime to be told",
    )
    assert gangline("delete", "trainjob/lone").returncode == 0
