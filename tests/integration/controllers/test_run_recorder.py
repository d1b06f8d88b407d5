"""Runs are written down by the server, whoever creates and deletes their jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.api.crds import crds
from gangline.api.resources import CRDS, JOBS, MPIJOBS, PODS
from gangline.clock import now
from gangline.cluster.controllers import run_recorder
from gangline.cluster.controllers.all import run_controllers
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.runs.history import History
from gangline.cluster.runs.record import PROGRAM_ANNOTATION, RunRecord, summary_of
from gangline.cluster.server.resources import STORED_KINDS
from gangline.cluster.server.server import ApiServer
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.errors import NotFound

Serve = Callable[[], Awaitable[asyncio.Task[None]]]

OVER = {"conditions": [{"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-11-22T12:00:00Z"}]}
STARTED = {"conditions": [{**OVER["conditions"][0], "type": "Running"}]}


@pytest.fixture
def history(server: ApiServer) -> History:
    return History(server.paths)


@pytest.fixture
async def serve(client: Client, history: History) -> AsyncIterator[Serve]:
    """Start the controllers with a recorder; may be called again once they are ended."""
    tasks: list[asyncio.Task[None]] = []
    for manifest in crds():
        await apply(client, CRDS, manifest)

    async def start() -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(run_controllers(client, STORED_KINDS, history)))
        return tasks[-1]

    yield start
    for task in tasks:
        await end(task)


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(60):
        while not (found := condition()):
            await asyncio.sleep(0.01)
    return found


def mpi_job(name: str = "train", **metadata: Any) -> dict[str, Any]:
    template = {
        "spec": {
            "containers": [{"name": "main", "image": "x", "env": [{"name": "K", "value": "confidential"}]}]
        }
    }
    roles = {role: {"replicas": 1, "template": template} for role in ("Launcher", "Worker")}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"mpiReplicaSpecs": roles},
    }


def worker_of(job: dict[str, Any]) -> dict[str, Any]:
    metadata = job["metadata"]
    owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": metadata["name"]}
    owner |= {"uid": metadata["uid"], "controller": True}
    labels = {"training.kubeflow.org/job-name": metadata["name"], "training.kubeflow.org/job-role": "worker"}
    name = {"name": f"{metadata['name']}-worker-0", "namespace": "default", "labels": labels}
    template = mpi_job()["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": name | {"ownerReferences": [owner]}, **template}


def only(history: History) -> RunRecord | None:
    files = history.files()
    return history.read(files[0]) if files else None


def of_name(history: History, name: str) -> RunRecord:
    [file] = [file for file in history.files() if file.name == name]
    return history.read(file)


def status(history: History) -> str:
    record = only(history)
    return summary_of(record, now()).status if record else ""


async def test_a_job_is_recorded_with_its_pods_and_its_end_without_environment(client, serve, history):
    await serve()
    job = await client.create(MPIJOBS, mpi_job())
    await client.create(PODS, worker_of(job))
    await until(lambda: (record := only(history)) and record.pods)
    assert status(history) == "PENDING"

    await client.patch(MPIJOBS, "train", {"status": OVER}, "default", subresource="status")

    await until(lambda: status(history) == "SUCCEEDED")
    record = only(history)
    assert record.pods[0]["metadata"]["name"] == "train-worker-0"
    assert "confidential" not in history.files()[0].path.read_text()


async def test_a_job_that_is_deleted_before_its_end_was_cancelled(client, serve, history):
    await serve()
    await client.create(MPIJOBS, mpi_job())
    await until(lambda: only(history))
    await client.delete(MPIJOBS, "train", "default")
    await until(lambda: status(history) == "CANCELLED")


async def test_each_run_of_a_manifest_has_a_record_of_its_own(client, serve, history):
    await serve()
    for count in (1, 2):
        await client.create(MPIJOBS, mpi_job())
        await until(lambda count=count: len(history.files()) == count)
        await client.delete(MPIJOBS, "train", "default")
        await until(lambda: status(history) == "CANCELLED")


async def test_the_end_of_a_run_is_written_without_a_pause(client, serve, history, monkeypatch):
    monkeypatch.setattr(run_recorder, "WRITE_PAUSE_S", 3600.0)
    await serve()
    await client.create(MPIJOBS, mpi_job())
    await until(lambda: status(history) == "PENDING")
    await client.patch(MPIJOBS, "train", {"status": OVER}, "default", subresource="status")
    await until(lambda: status(history) == "SUCCEEDED")


async def test_what_the_server_knew_when_it_was_stopped_is_written(client, serve, history, monkeypatch):
    monkeypatch.setattr(run_recorder, "WRITE_PAUSE_S", 3600.0)
    task = await serve()
    await client.create(MPIJOBS, mpi_job())
    await until(lambda: only(history))
    await client.patch(MPIJOBS, "train", {"status": STARTED}, "default", subresource="status")
    await client.create(MPIJOBS, mpi_job("later"))
    await until(lambda: len(history.files()) == 2)  # so the change before it has been seen
    assert summary_of(of_name(history, "train"), now()).status == "PENDING"
    await end(task)
    assert summary_of(of_name(history, "train"), now()).status == "RUNNING"


async def test_a_job_that_went_while_no_server_ran_is_lost(client, serve, history):
    task = await serve()
    await client.create(MPIJOBS, mpi_job())
    await until(lambda: only(history))
    await end(task)
    await client.delete(MPIJOBS, "train", "default")

    await serve()

    await until(lambda: status(history) == "LOST")


async def test_a_run_that_the_user_removed_does_not_come_back(client, serve, history):
    task = await serve()
    await client.create(MPIJOBS, mpi_job())
    await until(lambda: status(history))  # one that is over before the first look counts as removed
    await client.patch(MPIJOBS, "train", {"status": OVER}, "default", subresource="status")
    await until(lambda: status(history) == "SUCCEEDED")
    history.delete(history.files()[0])
    await end(task)
    await serve()

    await client.patch(MPIJOBS, "train", {"metadata": {"labels": {"a": "b"}}}, "default")
    await client.create(MPIJOBS, mpi_job("next"))

    await until(lambda: history.files())
    assert [file.name for file in history.files()] == ["next"]


async def test_a_disk_that_refuses_delays_the_record_and_nothing_else(client, serve, history, monkeypatch):
    monkeypatch.setattr(run_recorder, "RETRY_S", 0.05)
    history.folder.parent.mkdir(parents=True, exist_ok=True)
    history.folder.write_text("in the way")
    await serve()
    await client.create(MPIJOBS, mpi_job())
    await client.create(
        JOBS, {"metadata": {"name": "j", "namespace": "default"}, "spec": {"template": pod_spec()}}
    )
    async with asyncio.timeout(60):  # the other controllers work on
        while not (await client.list(PODS, "default")).items:
            await asyncio.sleep(0.01)

    history.folder.unlink()

    await until(lambda: {file.name for file in history.files()} == {"train", "j"})


def pod_spec() -> dict[str, Any]:
    return {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}


async def test_the_job_of_a_program_goes_an_hour_after_its_end_and_its_run_stays(
    client, serve, history, monkeypatch
):
    monkeypatch.setattr(run_recorder, "SWEEP_PAUSE_S", 0.01)
    monkeypatch.setattr(run_recorder, "SWEEP_PERIOD_S", 0.05)
    await serve()
    await client.create(MPIJOBS, mpi_job("manifest"))
    await client.create(MPIJOBS, mpi_job("program", annotations={PROGRAM_ANNOTATION: "python t.py"}))
    for name in ("manifest", "program"):
        await client.patch(MPIJOBS, name, {"status": OVER}, "default", subresource="status")

    async with asyncio.timeout(60):
        while True:
            try:
                await client.get(MPIJOBS, "program", "default")
            except NotFound:
                break
            await asyncio.sleep(0.01)

    assert (await client.get(MPIJOBS, "manifest", "default"))["status"] == OVER
    assert {file.name for file in history.files()} == {"manifest", "program"}


def test_the_folder_lies_in_the_clusters(tmp_path: Path):
    assert History(ClusterPaths("x", tmp_path)).folder == tmp_path / "runs"
