"""A mix of PyTorchJobs, TFJobs and TrainJobs, each with a script as those of ``job_mix``."""

from __future__ import annotations

from typing import Any

from job_mix import is_refused
from played_job import Played, Shape

from gangline.api.resources import PYTORCHJOBS, TFJOBS, TRAINJOBS, Resource

Ends = dict[str, tuple[str, str]]

_FIELDS = {"PyTorchJob": ("pytorchReplicaSpecs", "pytorch"), "TFJob": ("tfReplicaSpecs", "tensorflow")}
_HEADS = {"PyTorchJob": "master-0", "TFJob": "chief-0", "TrainJob": "node-0-0"}


def spec(resource: Resource, policy: str = "ExitCode", /, **more: Any) -> dict[str, Any]:
    """Return the spec of a job with a head, two workers and, of a TFJob, a parameter server."""
    if resource is TRAINJOBS:
        return {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 3}, **more}
    field, container = _FIELDS[resource.kind]
    template = {"spec": {"containers": [{"name": container, "image": "gangline/base"}]}}
    counts = {"Master": 1} if resource is PYTORCHJOBS else {"Chief": 1, "PS": 1}
    roles = {
        role: {"replicas": count, "restartPolicy": policy, "template": template}
        for role, count in {**counts, "Worker": 2}.items()
    }
    return {field: roles, "runPolicy": more}


def done(resource: Resource) -> Ends:
    kind = resource.kind
    if resource is TRAINJOBS:
        return {"Complete": ("True", "AllJobsCompleted")}
    return {
        "Created": ("True", f"{kind}Created"),
        "Running": ("False", f"{kind}Running"),
        "Succeeded": ("True", f"{kind}Succeeded"),
    }


def resumed(resource: Resource) -> Ends:
    prefix = "" if resource is TRAINJOBS else resource.kind
    return {**done(resource), "Suspended": ("False", f"{prefix}Resumed")}


def failed(resource: Resource, reason: str) -> Ends:
    return {**done(resource), "Succeeded": ("", ""), "Failed": ("True", reason)}


def children(resource: Resource, *, pods: int = 0, runs: int = 1) -> dict[str, int]:
    """Return the objects of a job that ran so often whole, and so many pods more, by kind."""
    size = {"PyTorchJob": 3, "TFJob": 4, "TrainJob": 3}[resource.kind]
    services = 1 if resource is TRAINJOBS else size
    return {"Pod": runs * size + pods, "Service": runs * services}


def _pods(job: Played) -> list[dict[str, Any]]:
    return job.world.pods(job.name)


async def runs(job: Played, restarts: int = 0) -> None:
    """Wait until the status says that every pod runs; a TrainJob has no condition for it."""

    def all_run() -> bool:
        status = job.object.get("status", {})
        if status.get("restarts", 0) != restarts:
            return False
        if job.shape.resource is TRAINJOBS:
            return not job.has("Suspended") and [one["ready"] for one in status.get("jobsStatus", [])] == [1]
        active = sum(one.get("active", 0) for one in status.get("replicaStatuses", {}).values())
        return job.has("Running") and active == children(job.shape.resource)["Pod"]

    await job.until(all_run)


async def succeeds(job: Played, restarts: int = 0) -> None:
    await runs(job, restarts)
    kind = job.shape.resource.kind

    def are_there() -> bool:  # an operator that fell behind may count those of the run before
        phases = [pod.get("status", {}).get("phase") for pod in _pods(job)]
        return phases == ["Running"] * children(job.shape.resource)["Pod"]

    if job.shape.resource is TRAINJOBS:
        await job.until(are_there)
    ends = _pods(job) if job.shape.resource is TRAINJOBS else [await job.pod(_HEADS[kind])]
    for pod in ends:
        await job.world.set_phase(pod, "Succeeded")
    await job.until(lambda: job.has("Succeeded") or job.has("Complete"))


async def _worker_ends(job: Played, code: int) -> None:
    await runs(job)
    pod = await job.pod("node-0-1" if job.shape.resource is TRAINJOBS else "worker-1")
    container = pod["spec"]["containers"][0]["name"]
    end = {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}
    statuses = [{"name": container, "state": {"terminated": end}}]
    await job.world.set_phase(pod, "Failed", containerStatuses=statuses)


async def is_made_again(job: Played) -> None:
    await _worker_ends(job, 137)
    await succeeds(job, restarts=1)


async def fails(job: Played) -> None:
    await _worker_ends(job, 1)
    await job.until(lambda: job.has("Failed"))


async def is_deleted(job: Played) -> None:
    await runs(job)
    await job.world.client.delete(job.shape.resource, job.name, job.world.namespace)
    await job.until(lambda: not job.object)


async def ends_and_goes(job: Played) -> None:
    await runs(job)
    await job.world.set_phase(await job.pod(_HEADS[job.shape.resource.kind]), "Succeeded")
    await job.until(lambda: not job.object)


async def is_resumed(job: Played) -> None:
    def suspension(value: bool) -> dict[str, Any]:
        switch = {"suspend": value}
        return switch if job.shape.resource is TRAINJOBS else {"runPolicy": switch}

    await job.until(lambda: job.has("Suspended"))
    await job.edit(suspension(False))
    await runs(job)
    await job.edit(suspension(True))
    await job.until(lambda: job.has("Suspended") and not _pods(job))
    await job.edit(suspension(False))
    await succeeds(job)


async def grows_and_shrinks(job: Played) -> None:
    await runs(job)
    field, _ = _FIELDS[job.shape.resource.kind]
    for count in (3, 1):
        await job.edit({field: {"Worker": {"replicas": count}}})
        counted = lambda: job.object["status"]["replicaStatuses"]["Worker"].get("active")  # noqa: E731
        size = children(job.shape.resource)["Pod"] - 2 + count
        await job.until(lambda: counted() == count and len(_pods(job)) == size)  # noqa: B023
    await job.world.set_phase(await job.pod(_HEADS[job.shape.resource.kind]), "Succeeded")
    await job.until(lambda: job.has("Succeeded"))


def _shape(
    resource: Resource, name: str, script: Any, ends: Ends, made: Any, left: Any, **more: Any
) -> Shape:
    more.setdefault("spec", spec(resource))
    return Shape(f"{resource.kind.lower()}-{name}", script, ends, made, left, resource=resource, **more)


def _of_all(resource: Resource) -> tuple[Shape, ...]:
    made, good = children(resource), done(resource)
    # The Service goes with pods that still run: none finds them by it any more.
    left = {"Pod": made["Pod"]} if resource is TRAINJOBS else made
    gone = {"annotations": {"gangline.dev/on-worker-failure": "restart-gang"}}
    suspended = spec(resource, suspend=True)
    return (
        _shape(resource, "plain", succeeds, good, made, left),
        _shape(resource, "again", is_made_again, good, children(resource, pods=1), left, restarts=1),
        _shape(
            *(resource, "gang", is_made_again, good),
            *({**made, "Pod": 2 * made["Pod"]}, left),
            restarts=1,
            **gone,
        ),
        _shape(
            *(resource, "resumed", is_resumed, resumed(resource), children(resource, runs=2), left),
            spec=suspended,
        ),
        _shape(resource, "deleted", is_deleted, {}, made, {}),
    )


def _of_roles(resource: Resource) -> tuple[Shape, ...]:
    all_left, good, kind = children(resource), done(resource), resource.kind
    broken = spec(resource)
    next(iter(broken.values()))["Boss"] = {}
    return (
        _shape(
            *(resource, "cleaned", succeeds, good, all_left, {}),
            spec=spec(resource, cleanPodPolicy="All"),
        ),
        _shape(
            *(resource, "short-lived", ends_and_goes, {}, all_left, {}),
            spec=spec(resource, ttlSecondsAfterFinished=0),
        ),
        _shape(
            *(resource, "badly", fails, failed(resource, f"{kind}Failed"), all_left, all_left),
        ),
        _shape(
            *(resource, "refused", is_refused, {"Failed": ("True", "ValidationError")}, {}, {}),
            spec=broken,
        ),
        _shape(
            *(resource, "elastic", grows_and_shrinks, good),
            *({kind: count + 1 for kind, count in all_left.items()},),
            *({kind: count - 1 for kind, count in all_left.items()},),
        ),
    )


TRAINING_SHAPES = (
    *(shape for resource in (PYTORCHJOBS, TFJOBS, TRAINJOBS) for shape in _of_all(resource)),
    *(shape for resource in (PYTORCHJOBS, TFJOBS) for shape in _of_roles(resource)),
)
