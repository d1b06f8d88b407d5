"""The MPIJob that ``gangline run -n N -- PROGRAM`` writes for its user. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gangline.api.dns_names import LABEL_CHARACTERS_MAX, is_dns_1123_label
from gangline.api.resources import MPIJOBS
from gangline.cluster.runs.names import NAME_CHARS_MAX
from gangline.cluster.user_session import ANNOTATION as SESSION_ANNOTATION
from gangline.cluster.user_session import MACHINE
from gangline.errors import UserError
from gangline.launch.mpi import MpiInstallation
from gangline.launch.mpirun import RankRequest, mpirun_line
from gangline.launch.program import Program
from gangline.launch.rank_tags import ANNOTATION
from gangline.launch.wrapper.mpirun_wrapper import BIN_VARIABLE, PIECES_VARIABLE

RANKS_MAX = 1024
IMAGE = "gangline/base"
GPU = "nvidia.com/gpu"
_IMPLEMENTATIONS = {"openmpi": "OpenMPI", "mpich": "MPICH", "intel": "Intel"}


class ProgramRun(msgspec.Struct, frozen=True):
    """What to run and on how many ranks.

    Attributes:
        name: name of the job.
        namespace: its namespace.
        ranks: number of ranks, at least 1.
        nodes: number of worker pods, each on a node of its own.
        program: what each rank runs.
        environment: variables for every rank besides those that the program needs.
        master_addr: where torch's ranks meet.
        master_port: the port there.
        gpus_per_rank: GPUs that each rank has for itself.
        libraries: variables of both roles' containers with which the MPI's libraries are found.
        session: how its pods get the user's own files and environment, a value of the annotation of
            ``gangline.cluster.user_session``; empty for pods of their own world.
        restarts: how often all ranks start again after one has failed.
    """

    name: str
    namespace: str
    ranks: int
    nodes: int
    program: Program
    environment: dict[str, str]
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    gpus_per_rank: int = 0
    libraries: dict[str, str] = {}
    session: str = ""
    restarts: int = 0


def check_ranks(ranks: int, nodes: int) -> None:
    """Refuse counts that cannot be started.

    Raises:
        UserError: with the rule and the value found.
    """
    if not 1 <= ranks <= RANKS_MAX:
        raise UserError(f"-n must be 1 to {RANKS_MAX} ranks (found `{ranks}`)")
    if nodes < 1:
        raise UserError(f"--nodes must be at least 1 (found `{nodes}`)")
    if nodes > ranks:
        raise UserError(
            f"--nodes {nodes} is more than -n {ranks}: a node would have no rank",
            hint=f"lower --nodes to {ranks}, or raise -n to {nodes}",
        )


def check_name(name: str | None) -> None:
    """Refuse a name of which no host names can be made.

    Raises:
        UserError: with a name that would do as the hint.
    """
    if name is None or is_dns_1123_label(name):
        return
    better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:NAME_CHARS_MAX].strip("-")
    raise UserError(
        f"--name must be lower-case letters, digits and inner dashes, at most {LABEL_CHARACTERS_MAX}, for it "
        f"becomes part of host names (found `{name}`)",
        hint=f"--name {better}" if better else "",
    )


def name_of_program(line: Sequence[str]) -> str:
    """Return the name of a job for a command line: the script's, else the module's, else the program's.

    Example:
        >>> name_of_program(["python", "src/Train_model.py", "--epochs", "3"])
        'train-model'
    """
    words = [word for word in line[1:] if not word.startswith("-")]
    chosen = line[0]
    if PurePosixPath(line[0]).name.startswith("python"):
        if "-m" in line[1:-1]:
            chosen = line[line.index("-m") + 1].rpartition(".")[2]
        elif words and "-c" not in line:
            chosen = words[0]
    stem = PurePosixPath(chosen).name.removesuffix(".py").removesuffix(".sh")
    name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:NAME_CHARS_MAX].strip("-")
    if not name or not name[0].isalpha():
        name = f"run-{name}".strip("-")
    return name


def master_address(name: str, namespace: str, nodes: int, *, names_resolve: bool) -> str:
    """Return where rank 0 is reached: loopback in one pod or without names of pods, else the first worker."""
    if nodes == 1 or not names_resolve:
        return "127.0.0.1"
    return f"{name}-worker-0.{name}.{namespace}.svc"


def literal(word: str) -> str:
    """Return a word of a container's command that Kubernetes hands on as the given one.

    Kubernetes puts variables in for `$(NAME)`, and one dollar for two (reference of the Pod API, `command`).

    >>> literal("kill $$"), literal("$HOME")
    ('kill $$$$', '$HOME')
    """
    return word.replace("$", "$$") if "$$" in word or "$(" in word else word


def build_job(run: ProgramRun, mpi: MpiInstallation) -> dict[str, Any]:
    """Return the MPIJob in wire form.

    In the user's session on one node its only pod is the launcher, which starts the ranks beside itself: no
    other host, and no remote shell by which another pod could come in.
    """
    slots = -(-run.ranks // run.nodes)
    is_one_pod = run.session == MACHINE
    environment = run.program.environment | run.environment
    environment |= {"MASTER_ADDR": run.master_addr, "MASTER_PORT": str(run.master_port)}
    ranks = RankRequest(
        count=run.ranks,
        per_host=slots,
        environment=environment,
        working_dir=run.program.working_dir,
        gpus_each=run.gpus_per_rank,
        on_this_host=is_one_pod,
    )
    session = {SESSION_ANNOTATION: run.session} if run.session else {}
    tags = {ANNOTATION: "true"}
    volumes, mounts = ([], []) if run.session else volumes_of(run.program)
    libraries = [{"name": name, "value": value} for name, value in run.libraries.items()]
    launcher: dict[str, Any] = {
        "name": "launcher",
        "image": IMAGE,
        "command": [literal(word) for word in mpirun_line(mpi, ranks, run.program.line)],
        # Also where the cluster was started with another MPI than the one that is first on the PATH now.
        "env": [
            {"name": BIN_VARIABLE, "value": str(mpi.bin)},
            {"name": PIECES_VARIABLE, "value": "1"},
            *libraries,
        ],
    }
    launcher_spec: dict[str, Any] = {"containers": [launcher]}
    if shown := next((mount for mount in mounts if mpi.prefix.is_relative_to(mount["mountPath"])), None):
        launcher["volumeMounts"] = [shown | {"readOnly": True}]
        launcher_spec["volumes"] = [volume for volume in volumes if volume["name"] == shown["name"]]
    worker: dict[str, Any] = {"name": "worker", "image": IMAGE, "env": libraries, "volumeMounts": mounts}
    if run.gpus_per_rank:
        holder = launcher if is_one_pod else worker
        holder["resources"] = {"limits": {GPU: slots * run.gpus_per_rank}}
    worker_spec: dict[str, Any] = {"containers": [worker], "volumes": volumes}
    if run.nodes > 1:
        worker_spec["topologySpreadConstraints"] = [_spread(run.name)]
    roles = {"Launcher": _role(1, launcher_spec, tags | session)}
    if not is_one_pod:
        roles["Worker"] = _role(run.nodes, worker_spec, session)
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": MPIJOBS.kind,
        "metadata": {"name": run.name, "namespace": run.namespace, "annotations": tags},
        "spec": {
            "slotsPerWorker": slots,
            "mpiImplementation": _IMPLEMENTATIONS[mpi.flavour],
            **({"runLauncherAsWorker": True} if is_one_pod else {}),
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": run.restarts},
            "mpiReplicaSpecs": roles,
        },
    }


def _role(replicas: int, spec: dict[str, Any], annotations: dict[str, str]) -> dict[str, Any]:
    metadata = {"metadata": {"annotations": annotations}} if annotations else {}
    return {"replicas": replicas, "restartPolicy": "Never", "template": {**metadata, "spec": spec}}


def _spread(job: str) -> dict[str, Any]:
    """Return the constraint that puts the workers of one job on nodes of their own."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {
            "matchLabels": {"training.kubeflow.org/job-name": job, "training.kubeflow.org/job-role": "worker"}
        },
    }


def volumes_of(program: Program) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes of a pod of its own world, and where they are mounted."""
    volumes, mounts = [], []
    for index, folder in enumerate(program.folders):
        name = f"host-{index}"
        volumes.append({"name": name, "hostPath": {"path": folder.path}})
        mount: dict[str, Any] = {"name": name, "mountPath": folder.path}
        if folder.read_only:
            mount["readOnly"] = True
        mounts.append(mount)
    return volumes, mounts
