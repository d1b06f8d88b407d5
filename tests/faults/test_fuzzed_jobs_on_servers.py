"""Fuzzed MPIJobs sent to servers: taken, or refused by naming a field; the operator bears what is taken.

A real server and the embedded one must agree where the definition of MPIJob decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog
from fuzzed_jobs import copied, documents
from hypothesis import HealthCheck, Phase, given, seed, settings
from job_mix import SHAPES
from played_job import manifest
from prepared_server import direct, prepared

from gangline.api.resources import MPIJOB_VERSIONS, MPIJOBS, NAMESPACES
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.server import ApiServer
from gangline.jobs import mpijob
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.kube.errors import ApiError
from gangline.operator.operator import Operator

job_count = 200
settle_limit_s = 60.0
workers_max = 3
"""More workers than this are cut down: the objects of a job are not what is tested here."""


def fuzzed_jobs(count: int) -> list[dict[str, Any]]:
    """Return so many jobs, the same ones each time, as an API server may be sent."""
    found: list[dict[str, Any]] = []

    @seed(1)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(documents())
    def collect(document: Any) -> None:
        few_workers(document)
        found.append(copied(document))

    collect()
    return found[:count]


def few_workers(document: Any) -> None:
    """Cut numbers of pods, wherever a version has them, down to a few."""
    spec = document.get("spec")
    roles = spec.get("mpiReplicaSpecs") if isinstance(spec, dict) else None
    for holder in [spec, *(roles.values() if isinstance(roles, dict) else [])]:
        for name in ("replicas", "gpus", "processingUnits"):
            value = holder.get(name) if isinstance(holder, dict) else None
            if isinstance(value, int) and not isinstance(value, bool) and workers_max < value < 2**31:
                holder[name] = workers_max


class Verdict(NamedTuple):
    """What a server said: the status, and the fields that it named."""

    status: int
    fields: tuple[str, ...]
    message: str


async def submit(client: Client, job: Any, namespace: str, index: int) -> Verdict:
    """Create one job under a name of its own, at the version that it names."""
    document = copied(job)
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        metadata["namespace"] = namespace
        if isinstance(metadata.get("name"), str):
            metadata["name"] = f"{metadata['name'][:20]}{index}"
    version = str(document.get("apiVersion"))
    resource = next((one for one in MPIJOB_VERSIONS if one.api_version == version), MPIJOBS)
    body = json.dumps(document).encode()  # NaN and Infinity too, which no server may take
    try:
        await client.request("POST", resource.path(namespace), body=body)
    except ApiError as error:
        fields = tuple(sorted({one.path for one in error.field_errors}))
        return Verdict(error.status, fields, error.message)
    return Verdict(201, (), "")


@pytest.mark.timeout(300)
async def test_the_operator_bears_whatever_a_server_takes(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpijob, "suspended_status_age_s", 0.0)
    jobs = fuzzed_jobs(job_count)
    async with Client(direct(api)) as client, prepared(client, embedded=bool(api.embedded)):
        with structlog.testing.capture_logs() as logs:
            operator = Operator(client, namespace=api.namespace)
            running = asyncio.create_task(operator.run())
            try:
                verdicts = [await submit(client, job, api.namespace, index) for index, job in enumerate(jobs)]
                await quiet(operator, sum(verdict.status == 201 for verdict in verdicts))
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
        assert [entry for entry in logs if entry.get("exc_info")] == []
        for verdict in verdicts:
            assert verdict.status == 201 or 400 <= verdict.status < 500, verdict
            assert verdict.status != 422 or verdict.fields, verdict
        assert {201, 422} <= {verdict.status for verdict in verdicts}
        stored = (await client.list(MPIJOBS, api.namespace)).items
        assert all(job.get("status", {}).get("conditions") for job in stored if is_ours(job))


def is_ours(job: dict[str, Any]) -> bool:
    policy = (job["spec"].get("runPolicy") or {}).get("managedBy")
    return policy in (None, "kubeflow.org/mpi-operator")


async def quiet(operator: Operator, jobs: int) -> None:
    """Wait until the operator has looked at all jobs and has nothing at hand."""
    async with asyncio.timeout(settle_limit_s):
        while True:
            queue, held = operator._queue.statistics(), operator.statistics()
            counted = sum(count for *_, count in held.jobs)
            if counted == jobs and not (queue.ready or queue.in_work) and held.reconcile.count >= jobs:
                return
            await asyncio.sleep(0.05)


async def test_a_job_of_any_depth_stops_no_other(api: Any) -> None:
    depth = 300 if api.embedded else 5000
    made = manifest(SHAPES[0], "deep", api.namespace)
    made["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["x"] = "DEEP"
    body = json.dumps(made).replace('"DEEP"', '{"a":' * depth + "1" + "}" * depth).encode()
    async with Client(direct(api)) as client, prepared(client, embedded=bool(api.embedded)):
        await client.send("POST", MPIJOBS.path(api.namespace), body=body)
        operator = Operator(client, namespace=api.namespace)
        running = asyncio.create_task(operator.run())
        try:
            await client.create(MPIJOBS, manifest(SHAPES[0], "plain", api.namespace))
            conditions: dict[str, str] = {}
            async with asyncio.timeout(settle_limit_s):
                while len(conditions) < 2:
                    await asyncio.sleep(0.05)
                    found = (await client.list(MPIJOBS, api.namespace)).items
                    conditions = {
                        job["metadata"]["name"]: job["status"]["conditions"][-1]["reason"]
                        for job in found
                        if job.get("status", {}).get("conditions")
                    }
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
    assert conditions == {"deep": "MPIJobCreated", "plain": "MPIJobCreated"}  # what no pod has is dropped


@pytest.mark.kubernetes
@pytest.mark.timeout(300)
async def test_both_servers_take_the_same_jobs(
    real_cluster: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = fuzzed_jobs(job_count)
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    server = ApiServer(ClusterPaths.of("test"))
    await server.start()
    try:
        ours = await submit_all(server.paths.kubeconfig, jobs)
    finally:
        await server.stop()
        shutil.rmtree(server.paths.run, ignore_errors=True)
    theirs = await submit_all(real_cluster.kubeconfig, jobs)
    differences = [
        (json.dumps(job)[:300], one, other)
        for job, one, other in zip(jobs, ours, theirs, strict=True)
        if (one.status == 201) != (other.status == 201)
    ]
    assert differences == []


async def submit_all(kubeconfig: Path, jobs: list[Any]) -> list[Verdict]:
    """Create all jobs in a namespace of their own, with no operator running."""
    name = f"fuzz-{uuid.uuid4().hex[:8]}"
    async with Client(load_kubeconfig(kubeconfig)) as client, prepared(client, embedded=False):
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await client.create(NAMESPACES, made)
        verdicts = [await submit(client, job, name, index) for index, job in enumerate(jobs)]
        await client.delete(NAMESPACES, name)
        return verdicts
