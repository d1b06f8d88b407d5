"""``gangline run -- PROGRAM`` on this machine: from the command line to a job that is still to be named.

An MPIJob, unless another kind is asked for: then each pod starts its ranks itself.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gangline.api.resources import MPIJOBS
from gangline.client.run.pod_options import PodOptions
from gangline.client.run.program_job import GPU, IMAGE, ProgramRun, literal, volumes_of
from gangline.client.run.program_kinds import PROGRAM_KINDS, Pods, ProgramKind
from gangline.client.run.program_session import HandOver, handover_of, no_handover
from gangline.cluster.user_session import ANNOTATION as SESSION_ANNOTATION
from gangline.cluster.user_session import MACHINE
from gangline.errors import UserError
from gangline.launch.pods.programs import path_of
from gangline.launch.rank_tags import ANNOTATION as TAGS_ANNOTATION
from gangline.workloads.running_pod import RANKS_PER_POD

if TYPE_CHECKING:
    from gangline.client.run.program_name import ProgramJob
    from gangline.client.target import ClusterTarget

Obj = dict[str, Any]

PORT_ATTEMPTS_MAX = 100


def local_program(
    program: tuple[str, ...],
    target: ClusterTarget,
    counts: tuple[int, int, int],
    code: Path | None,
    name: str | None,
    environment: dict[str, str],
    session: str,
    kind: str | None,
    function: bytes | None = None,
    cwd: Path | None = None,
    restarts: int = 0,
) -> ProgramJob:
    """Return the job of a program.

    Args:
        program: as the user typed it.
        target: the cluster.
        counts: ranks, nodes and GPUs of each rank.
        code: folder of the code.
        name: of the job.
        environment: of ``chosen_environment``.
        session: value of the annotation of user sessions, empty for isolated pods.
        kind: of the job, None for an MPIJob.
        function: what its ranks call, in a session alone; see ``call_function``.
        cwd: folder that relative words mean; this process' one by default.
        restarts: how often all ranks start again after one has failed.
    """
    from gangline.client.run import program_job
    from gangline.client.run.program_name import ProgramJob
    from gangline.cluster.images.local_images import library_environment
    from gangline.launch.mpi import find_mpi
    from gangline.launch.program import program_as_typed, resolve_program, with_folder

    ranks, nodes, gpus_per_rank = counts
    program_job.check_ranks(ranks, nodes)
    program_job.check_name(name)
    other = PROGRAM_KINDS[kind] if kind and kind != MPIJOBS.kind.lower() else None
    if other:
        _check_pods(other, nodes, restarts)
    resolve = program_as_typed if session else resolve_program
    around = dict(os.environ) | environment
    resolved = resolve(program, cwd=cwd or Path.cwd(), code=code, environment=around)
    mpi = find_mpi()
    libraries = library_environment(mpi)
    namespace = target.namespace or "default"
    defaults = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(max(1, cores() // ranks))}
    hand_over: HandOver = no_handover
    if session:
        hand_over = handover_of(target.paths, libraries | defaults | around, function)
        libraries = defaults = environment = {}
    run = program_job.ProgramRun(
        name=name or program_job.name_of_program(program),
        namespace=namespace,
        ranks=ranks,
        nodes=nodes,
        gpus_per_rank=gpus_per_rank,
        program=resolved if session else with_folder(resolved, mpi.prefix),
        environment=defaults | environment,
        libraries=libraries,
        session=session,
        restarts=restarts,
    )
    names_resolve = _names_resolve(target)

    def build(job: str) -> dict[str, Any]:
        address = program_job.master_address(job, namespace, nodes, names_resolve=names_resolve)
        port = _free_master_port(f"{namespace}/{job}")
        named = replace(run, name=job, master_addr=address, master_port=port)
        return _job_of(other, named) if other else program_job.build_job(named, mpi)

    return ProgramJob(program, name, run.name, build, hand_over)


def cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _names_resolve(target: ClusterTarget) -> bool:
    """Return whether pods find each other by name: everywhere but in plain mode."""
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.daemon.cluster_facts import load_facts

    facts = load_facts(target.paths)
    wanted = facts.isolation if facts else "auto"
    return (Cluster(target.paths).isolation_in_use() or wanted) != "plain"


def _free_master_port(job: str) -> int:
    """Return a port for torch's rendezvous that is free on this machine.

    Another one for every run: rank 0 listens seconds later, and another cluster's job of that name may
    ask before it does.
    """
    from gangline.cluster.daemon.cluster_facts import is_port_free
    from gangline.launch.mpirun import master_port

    run = f"{job}-{os.getpid()}-{time.time_ns()}"
    for attempt in range(PORT_ATTEMPTS_MAX):
        port = master_port(run, attempt)
        if is_port_free(port):
            return port
    raise UserError(
        "no port between 20000 and 29999 is free for the ranks to meet", hint="--env MASTER_PORT=PORT"
    )


def _check_pods(kind: ProgramKind, nodes: int, restarts: int) -> None:
    """Refuse several pods of another kind than an MPIJob: here MPI alone reaches from one to the others.

    Pods of other kinds are not started again here either.

    Raises:
        UserError: with the ways on.
    """
    if nodes > 1:
        word = kind.resource.kind.lower()
        raise UserError(
            f"--kind {word} on this machine has one pod (found --nodes {nodes})",
            hint="leave --nodes out, take --kind mpijob, or a cluster of several pods: --context CONTEXT",
        )
    if restarts:
        raise UserError(
            f"--restarts goes with an MPIJob on this machine (found --kind {kind.resource.kind.lower()})",
            hint="leave --kind out",
        )


def _job_of(kind: ProgramKind, run: ProgramRun) -> Obj:
    """Return a job whose pods start the ranks themselves, in wire form."""
    per_pod = -(-run.ranks // run.nodes)
    tags = {TAGS_ANNOTATION: "true"}
    session = {SESSION_ANNOTATION: run.session} if run.session else {}
    master = run.master_addr if run.nodes == 1 else kind.hosts(run.name, run.name, run.nodes)[0]
    words = [sys.executable, str(path_of("pod_ranks.py")), "--ranks", str(run.ranks)]
    words += ["--per-pod", str(per_pod), "--master", master, "--", *map(literal, run.program.line)]
    variables = run.libraries | run.program.environment | run.environment
    container: Obj = {
        "name": kind.container,
        "image": IMAGE,
        "command": words,
        "workingDir": str(run.program.working_dir),
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    if kind.port_name and run.session == MACHINE:  # of the machine's network, which others use too
        container["ports"] = [{"name": kind.port_name, "containerPort": run.master_port}]
    else:
        container["env"].append({"name": "MASTER_PORT", "value": str(run.master_port)})
    if run.gpus_per_rank:
        container["resources"] = {"limits": {GPU: per_pod * run.gpus_per_rank}}
    spec: Obj = {"containers": [container]}
    if not run.session:
        spec["volumes"], container["volumeMounts"] = volumes_of(run.program)
    template = {"metadata": {"annotations": tags | session}, "spec": spec}
    pods = Pods(run.name, run.nodes, per_pod, template, PodOptions())
    job = kind.patched(pods) if kind.patched else kind.spec(pods)
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {
            "name": run.name,
            "namespace": run.namespace,
            "annotations": tags | {RANKS_PER_POD: str(per_pod)},
        },
        "spec": kind.started(job),
    }
