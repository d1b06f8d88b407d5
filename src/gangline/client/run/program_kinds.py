"""The kinds of job in which ``gangline run --kind`` puts a program: what each makes of the same pods. Pure.

All pods run the same line and start their share of the ranks; they differ in who makes them, in their host
names, and in how a pod learns its number.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Final

import msgspec

from gangline.api.mpijob import LAUNCHER, WORKER
from gangline.api.resources import JOBS, MPIJOBS, PYTORCHJOBS, TRAINING_RUNTIMES, TRAINJOBS, Resource
from gangline.api.trainer.bundled import TORCH_DISTRIBUTED
from gangline.api.trainer.job import NODE, STEP_LABEL, TRAINER_STEP
from gangline.api.training.job import MASTER
from gangline.api.training.kinds import PYTORCHJOB
from gangline.client.run.pod_options import PodOptions
from gangline.jobs.names import REPLICA_INDEX_LABEL

Obj = dict[str, Any]

ENDED = 128 + signal.SIGTERM
"""Exit code of a pod that was told to end, see ``pod_ranks``."""
_RULES: list[Obj] = [
    {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0, ENDED]}},
]
"""A pod that was drained, evicted or deleted comes back; one whose ranks failed has tried often enough."""
_MANAGER: Final = "gangline.dev/run"
COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
NUMBER_VARIABLE = "JOB_COMPLETION_INDEX"
"""Where a pod reads its number, as in an indexed Job."""


class Pods(msgspec.Struct, frozen=True):
    """The pods of a program.

    Attributes:
        name: of what belongs to the job.
        count: how many.
        ranks_each: ranks of each.
        template: of all, without a restart policy.
        options: what the user said of them.
    """

    name: str
    count: int
    ranks_each: int
    template: Obj
    options: PodOptions


class ProgramKind(msgspec.Struct, frozen=True):
    """One kind.

    Attributes:
        resource: where its jobs live.
        container: name of the container that trains.
        has_operator: whether an operator makes pods and their names; a Job's first pod is found by a Service
            of the program's own.
        hosts: name of the job, its subdomain, and number of pods -> host name of each pod.
        spec: spec of a job that waits to be started.
        start: what a merge patch of the spec says to start it.
        runtime: spec of the runtime that such a job names; None where its own spec has all.
        patched: spec of one that changes a runtime which is there anyway; our operator takes any change.
        port_name: of the port where its replicas meet, as its operator looks for it; empty where none does.
    """

    resource: Resource
    container: str
    has_operator: bool
    hosts: Callable[[str, str, int], list[str]]
    spec: Callable[[Pods], Obj]
    start: Obj
    runtime: Callable[[Pods], Obj] | None = None
    patched: Callable[[Pods], Obj] | None = None
    port_name: str = ""

    def started(self, spec: Obj) -> Obj:
        """Return a spec that starts at once."""
        policies = {key: {**spec[key], **value} for key, value in self.start.items() if key == "runPolicy"}
        return {**spec, **self.start, **policies}


def _job(pods: Pods) -> Obj:
    spec: Obj = {
        "suspend": True,
        "completionMode": "Indexed",
        "completions": pods.count,
        "parallelism": pods.count,
        "backoffLimit": pods.options.restarts,
        "template": _with_policy(pods.template),
    }
    if pods.options.restarts:
        spec["podFailurePolicy"] = {"rules": _RULES}
    if pods.options.deadline_s:
        spec["activeDeadlineSeconds"] = pods.options.deadline_s
    return spec


def _with_policy(template: Obj) -> Obj:
    return {**template, "spec": {"restartPolicy": "Never", **template["spec"]}}


def _run_policy(pods: Pods, **more: object) -> Obj:
    deadline = {"activeDeadlineSeconds": pods.options.deadline_s} if pods.options.deadline_s else {}
    return {"suspend": True, "cleanPodPolicy": "Running", **more, **deadline}


def _roles(pods: Pods, first: str, restart_policy: str) -> Obj:
    role = {"replicas": 1, "restartPolicy": restart_policy, "template": pods.template}
    others = {WORKER: {**role, "replicas": pods.count - 1}} if pods.count > 1 else {}
    return {first: role, **others}


def _pytorchjob(pods: Pods) -> Obj:
    # ExitCode starts pods again that were drained or deleted (143), and no others.
    policy = "ExitCode" if pods.options.restarts else "Never"
    return {"runPolicy": _run_policy(pods), PYTORCHJOB.specs_field: _roles(pods, MASTER, policy)}


def _numbered(template: Obj, label: str) -> Obj:
    """Return a template whose pods read their number from a label."""
    index = {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}
    [container] = template["spec"]["containers"]
    env = [*container.get("env", ()), {"name": NUMBER_VARIABLE, "valueFrom": index}]
    return {**template, "spec": {**template["spec"], "containers": [{**container, "env": env}]}}


def _trainjob(pods: Pods) -> Obj:
    deadline = {"activeDeadlineSeconds": pods.options.deadline_s} if pods.options.deadline_s else {}
    [container] = pods.template["spec"]["containers"]
    resources = {"resourcesPerNode": container["resources"]} if container.get("resources") else {}
    return {
        "suspend": True,
        "runtimeRef": {"name": pods.name, "kind": TRAINING_RUNTIMES.kind},
        "trainer": {"numNodes": pods.count, **resources},
        **deadline,
    }


def _runtime(pods: Pods) -> Obj:
    """A runtime of the job's own: what a TrainJob may change of another's is too little for these pods."""
    job = {
        "metadata": {"labels": {STEP_LABEL: TRAINER_STEP}},
        "spec": {
            "backoffLimit": 0,
            "template": _numbered(_with_policy(pods.template), COMPLETION_INDEX_LABEL),
        },
    }
    return {
        "mlPolicy": {"numNodes": pods.count},
        "template": {"spec": {"replicatedJobs": [{"name": NODE, "template": job}]}},
    }


def _mpijob(pods: Pods) -> Obj:
    template = _numbered(pods.template, REPLICA_INDEX_LABEL)
    return {
        "slotsPerWorker": pods.ranks_each,
        "runLauncherAsWorker": True,
        "runPolicy": _run_policy(pods, backoffLimit=0),
        "mpiReplicaSpecs": _roles(msgspec.structs.replace(pods, template=template), LAUNCHER, "Never"),
    }


def _mpijob_hosts(name: str, _: str, count: int) -> list[str]:
    return [f"{name}-launcher.{name}", *(f"{name}-worker-{index}.{name}" for index in range(count - 1))]


def _trainjob_hosts(name: str, _: str, count: int) -> list[str]:
    return [f"{name}-{NODE}-0-{index}.{name}" for index in range(count)]


def _pytorchjob_hosts(name: str, _: str, count: int) -> list[str]:
    return [f"{name}-master-0", *(f"{name}-worker-{index}" for index in range(count - 1))]


PROGRAM_KINDS: Final = {
    kind.resource.kind.lower(): kind
    for kind in (
        ProgramKind(
            resource=JOBS,
            container="ranks",
            has_operator=False,
            hosts=lambda name, domain, count: [f"{name}-{index}.{domain}" for index in range(count)],
            spec=_job,
            start={"suspend": False},
        ),
        ProgramKind(
            resource=PYTORCHJOBS,
            container=PYTORCHJOB.container,
            has_operator=True,
            hosts=_pytorchjob_hosts,
            spec=_pytorchjob,
            start={"runPolicy": {"suspend": False}},
            port_name=PYTORCHJOB.port_name,
        ),
        ProgramKind(
            resource=MPIJOBS,
            container="ranks",
            has_operator=True,
            hosts=_mpijob_hosts,
            spec=_mpijob,
            start={"runPolicy": {"suspend": False}},
        ),
        ProgramKind(
            resource=TRAINJOBS,
            container=NODE,
            has_operator=True,
            hosts=_trainjob_hosts,
            spec=_trainjob,
            start={"suspend": False},
            runtime=_runtime,
            patched=lambda pods: {
                **_trainjob(pods),
                "runtimeRef": {"name": TORCH_DISTRIBUTED},
                "runtimePatches": [{"manager": _MANAGER, "trainingRuntimeSpec": _runtime(pods)}],
            },
        ),
    )
}
"""By the word of ``--kind``; the first is taken without it."""
