"""A mix of MPIJobs, each with a script of what happens to it, and how it must end whatever goes wrong.

A script waits for what the job's status says before it goes on, so that a job's end does not depend on how
fast the operator is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from played_job import Played, Shape, children

from gangline.api.resources import MPIJOBS
from gangline.jobs.settings import Settings

GANGS = Settings(gang_scheduling="gangs")

SUCCEEDED = {
    "Created": ("True", "MPIJobCreated"),
    "Running": ("False", "MPIJobRunning"),
    "Succeeded": ("True", "MPIJobSucceeded"),
}
RESUMED = {**SUCCEEDED, "Suspended": ("False", "MPIJobResumed")}


def failed(reason: str) -> dict[str, tuple[str, str]]:
    return {**SUCCEEDED, "Failed": ("True", reason)} | {"Succeeded": ("", "")}


async def succeeds(job: Played, restarts: int = 0) -> None:
    await job.runs(restarts)
    await job.world.set_phase(await job.launcher(), "Succeeded")
    await job.until(lambda: job.has("Succeeded"))


def _fail(code: int) -> dict[str, Any]:
    end = {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}
    return {"containerStatuses": [{"name": "main", "state": {"terminated": end}}]}


async def loses_a_worker(job: Played) -> None:
    await job.runs()
    worker = next(pod for pod in job.world.pods(job.name) if pod["metadata"]["name"].endswith("-worker-1"))
    await job.world.set_phase(worker, "Failed", **_fail(137))


async def worker_fails(job: Played) -> None:
    await loses_a_worker(job)
    await job.until(lambda: job.has("Failed"))


async def starts_again(job: Played) -> None:
    await loses_a_worker(job)
    await succeeds(job, restarts=1)


async def launcher_fails(job: Played) -> None:
    await job.runs()
    await job.world.set_phase(await job.launcher(), "Failed", **_fail(3))
    await job.until(lambda: job.has("Failed"))


async def launcher_is_placed_anew(job: Played) -> None:
    await job.runs()
    refused = await job.launcher()
    await job.world.set_phase(refused, "Failed", reason="OutOfcpu", message="Pod was rejected")
    uid = refused["metadata"]["uid"]
    await job.until(
        lambda: all(pod["metadata"]["uid"] != uid for pod in job.world.pods(job.name, "launcher"))
    )
    await succeeds(job)


async def is_refused(job: Played) -> None:
    await job.until(lambda: job.has("Failed"))


async def is_resumed(job: Played) -> None:
    await job.until(lambda: job.has("Suspended"))
    await job.edit({"runPolicy": {"suspend": False}})
    await job.runs()
    await job.edit({"runPolicy": {"suspend": True}})
    await job.until(lambda: job.has("Suspended") and not job.world.pods(job.name))
    await job.edit({"runPolicy": {"suspend": False}})
    await succeeds(job)


async def grows_and_shrinks(job: Played) -> None:
    await job.runs()
    for count in (3, 1):
        await job.edit({"mpiReplicaSpecs": {"Worker": {"replicas": count}}})
        replicas = lambda: job.object["status"]["replicaStatuses"]["Worker"].get("active")  # noqa: E731
        await job.until(lambda: replicas() == len(job.world.pods(job.name, "worker")) == count)  # noqa: B023
    await job.world.set_phase(await job.launcher(), "Succeeded")
    await job.until(lambda: job.has("Succeeded"))


async def is_deleted(job: Played) -> None:
    await job.runs()
    await job.world.client.delete(MPIJOBS, job.name, job.world.namespace)
    await job.until(lambda: not job.object)


_ALL_LEFT = children(2)
SHAPES = (
    Shape("plain", succeeds, SUCCEEDED, _ALL_LEFT, _ALL_LEFT),
    Shape(
        *("cleaned", succeeds, SUCCEEDED, _ALL_LEFT, children(0)),
        spec={"runPolicy": {"cleanPodPolicy": "All"}},
    ),
    Shape(
        *("half-cleaned", worker_fails, failed("MPIJobWorkerFailed"), _ALL_LEFT, children(1, launchers=0)),
        spec={"runPolicy": {"cleanPodPolicy": "Running"}},
    ),
    Shape(
        *("resumed", is_resumed, RESUMED, children(4, launchers=2), _ALL_LEFT),
        spec={"runPolicy": {"suspend": True}},
    ),
    Shape(
        "again",
        starts_again,
        SUCCEEDED,
        children(4, launchers=2, jobs=2),
        _ALL_LEFT,
        restarts=1,
        annotations={"gangline.dev/on-worker-failure": "restart-gang"},
    ),
    Shape(
        *("short-lived", succeeds, SUCCEEDED, _ALL_LEFT, children(2, launchers=0, jobs=0)),
        spec={"runPolicy": {"ttlSecondsAfterFinished": 0}},
    ),
    Shape(
        *("badly", launcher_fails, failed("BackoffLimitExceeded"), _ALL_LEFT, _ALL_LEFT),
        spec={"runPolicy": {"backoffLimit": 0}},
        launcher={"restartPolicy": "Never"},
    ),
    Shape(
        *("unplaced", launcher_is_placed_anew, SUCCEEDED, children(2, launchers=2, jobs=2), _ALL_LEFT),
        spec={"runPolicy": {"backoffLimit": 0}},
        launcher={"restartPolicy": "Never"},
    ),
    Shape(
        "refused",
        is_refused,
        {
            "Created": ("", ""),
            "Running": ("False", "MPIJobRunning"),
            "Failed": ("True", "ValidationError"),
        },
        {},
        {},
        launcher={"template": {"spec": {"containers": [{"name": "main"}]}}},
    ),
    Shape("alone", succeeds, SUCCEEDED, children(0), children(0), workers=0),
    Shape(
        *("with-launcher", succeeds, SUCCEEDED, _ALL_LEFT, _ALL_LEFT),
        spec={"runLauncherAsWorker": True},
    ),
    Shape(
        *("patient", succeeds, SUCCEEDED, _ALL_LEFT, _ALL_LEFT),
        spec={"launcherCreationPolicy": "WaitForWorkersReady"},
    ),
    Shape(
        *("elastic", grows_and_shrinks, SUCCEEDED, children(3), children(1)),
        command=("horovodrun", "--host-discovery-script", "/etc/mpi/discover_hosts.sh", "true"),
    ),
    Shape("deleted", is_deleted, {}, _ALL_LEFT, {}),
)


def as_gang(shape: Shape) -> Shape:
    """Return the shape under an operator that writes PodGroups: each run has one, no finished job has."""
    groups = {"resumed": 2, "refused": 0}.get(shape.name, 1)
    return replace(shape, made={**shape.made, "PodGroup": groups} if groups else shape.made)
