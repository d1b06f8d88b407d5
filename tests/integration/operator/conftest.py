"""The operator on an API server with a Job controller, embedded or real; the test plays the nodes.

On a real one kube-controller-manager runs the Jobs. No node exists on either: the tests report what becomes
of pods by patches of their status. ``OPERATOR_COMMAND`` puts another operator in ours' place for upstream's
cases; the other tests, of what is inside ours, are skipped then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import operator_under_test
import pytest

from gangline.api.crds import crds
from gangline.api.resources import CRDS, EVENTS, JOBS, MPIJOBS, NODES, PODS, Resource
from gangline.cluster.controllers.all import run_controllers
from gangline.cluster.server.resources import STORED_KINDS
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.errors import Conflict, NotFound
from gangline.operator.operator import Operator

WAIT_S = 60.0
UPSTREAM_CASES = "test_operator_upstream_cases.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not operator_under_test.COMMAND:
        return
    skip = pytest.mark.skip(reason="about our own operator, and OPERATOR_COMMAND names another")
    for item in items:
        if Path(__file__).parent in item.path.parents and item.path.name != UPSTREAM_CASES:
            item.add_marker(skip)


def mpijob(namespace: str, name: str = "pi", workers: int = 2, **spec: Any) -> dict[str, Any]:
    """A job that the API server takes; ``spec`` is laid over it."""
    container = {"name": "main", "image": "gangline/base"}
    replicas: dict[str, Any] = {
        "Launcher": {"template": {"spec": {"containers": [{**container, "command": ["mpirun", "true"]}]}}}
    }
    if workers:
        replicas["Worker"] = {"replicas": workers, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"mpiReplicaSpecs": replicas, **spec},
    }


@pytest.fixture
def make_job(api: Any) -> Callable[..., dict[str, Any]]:
    """Return the builder of jobs: ``make_job(name, workers, **spec)``."""
    return partial(mpijob, api.namespace)


class Cluster:
    """What the tests talk to. The operator is None where it is another process."""

    def __init__(self, client: Client, operator: Operator | None, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.operator = operator

    async def until(self, condition: Callable[[], Awaitable[Any]], limit_s: float = WAIT_S) -> Any:
        """Wait until the condition gives something true, and return it."""
        async with asyncio.timeout(limit_s):
            while True:
                if found := await condition():
                    return found
                await asyncio.sleep(0.005)

    async def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        return await self.client.create(MPIJOBS, job)

    async def job(self, name: str = "pi") -> dict[str, Any]:
        return await self.client.get(MPIJOBS, name, self.namespace)

    async def edit(self, patch: dict[str, Any], name: str = "pi") -> None:
        await self.client.patch(MPIJOBS, name, patch, self.namespace)

    async def condition(self, type_: str, status: str = "True", name: str = "pi") -> dict[str, Any]:
        return await self.has(MPIJOBS, type_, status, name)

    async def has(
        self, resource: Resource, type_: str, status: str = "True", name: str = "train"
    ) -> dict[str, Any]:
        """Wait until a job has the condition, and return that."""

        async def found() -> Any:
            job = await self.client.get(resource, name, self.namespace)
            conditions = job.get("status", {}).get("conditions", [])
            return next((c for c in conditions if c["type"] == type_ and c["status"] == status), None)

        try:
            return await self.until(found)
        except TimeoutError:
            job = await self.client.get(resource, name, self.namespace)
            raise AssertionError(f"no {type_}={status}: {job}") from None

    async def get(self, resource: Resource, name: str) -> dict[str, Any] | None:
        try:
            return await self.client.get(resource, name, self.namespace)
        except NotFound:
            return None

    async def exists(self, resource: Resource, name: str) -> dict[str, Any]:
        return await self.until(lambda: self.get(resource, name))

    async def another(
        self, resource: Resource, name: str, uid: str, limit_s: float = WAIT_S
    ) -> dict[str, Any]:
        """Wait until the name is that of another object than the one of this uid."""

        async def found() -> Any:
            one = await self.get(resource, name)
            return one if one and one["metadata"]["uid"] != uid else None

        return await self.until(found, limit_s)

    async def bind(self, pod: dict[str, Any], node: str) -> None:
        """Place a pod as a scheduler does: from now on it goes when its node says so."""
        name = pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self.client.create_subresource(PODS, name, "binding", body, self.namespace)

    async def set_node_ready(self, node: str, ready: str) -> None:
        patch = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
        await self.client.patch(NODES, node, patch, subresource="status")

    async def delete_pod(self, name: str, uid: str) -> None:
        """Have a pod go at once, unless it has gone already."""
        with contextlib.suppress(NotFound, Conflict):
            await self.client.delete(PODS, name, self.namespace, grace_period_s=0, uid=uid)

    async def gone(self, resource: Resource, name: str) -> None:
        async def is_gone() -> bool:
            return await self.get(resource, name) is None

        await self.until(is_gone)

    async def pods(self, role: str = "") -> list[dict[str, Any]]:
        selector = f"training.kubeflow.org/job-role={role}" if role else ""
        return (await self.client.list(PODS, self.namespace, label_selector=selector)).items

    async def some_pods(self, role: str, count: int) -> list[dict[str, Any]]:
        """Wait for so many pods of a role, those of an earlier job of the name not counted."""

        async def enough() -> list[dict[str, Any]]:
            owners = {
                job["metadata"]["uid"] for job in (await self.client.list(MPIJOBS, self.namespace)).items
            }
            for job in (await self.client.list(JOBS, self.namespace)).items:
                if job["metadata"]["ownerReferences"][0]["uid"] in owners:
                    owners.add(job["metadata"]["uid"])
            pods = await self.pods(role)
            pods = [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["uid"] in owners]
            return pods if len(pods) == count else []

        return await self.until(enough)

    async def set_phase(self, pod: dict[str, Any], phase: str, *, ready: bool = True, **status: Any) -> None:
        """What a node agent would report."""
        meta = pod["metadata"]
        conditions = [{"type": "Ready", "status": "True" if ready and phase == "Running" else "False"}]
        patch = {"status": {"phase": phase, "conditions": conditions, **status}}
        await self.client.patch(PODS, meta["name"], patch, meta["namespace"], subresource="status")

    async def fail(self, pod: dict[str, Any], code: int) -> None:
        container = pod["spec"]["containers"][0]["name"]
        state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}
        await self.set_phase(pod, "Failed", containerStatuses=[{"name": container, "state": state}])

    async def events(self, reason: str) -> list[dict[str, Any]]:
        if self.operator:
            await self.operator.flush_events()
        found = (await self.client.list(EVENTS, self.namespace)).items
        return [event for event in found if event["reason"] == reason]

    async def run_to_launcher(self, workers: int = 2) -> dict[str, Any]:
        """Let workers and launcher run; return the launcher's pod."""
        for pod in await self.some_pods("worker", workers):
            await self.set_phase(pod, "Running")
        (launcher,) = await self.some_pods("launcher", 1)
        await self.set_phase(launcher, "Running")
        return launcher

    async def settle(self) -> None:
        """Wait until the operator has nothing in hand; one of another process cannot be asked."""
        if self.operator is None:
            return
        queues = self.operator._queue

        async def is_quiet() -> bool:
            queue = queues.statistics()
            return not queue.ready and not queue.in_work

        await self.until(is_quiet)

    async def launcher_job(self, name: str = "pi") -> dict[str, Any]:
        return await self.exists(JOBS, f"{name}-launcher")


@pytest.fixture
async def client(api: Any) -> AsyncIterator[Client]:
    connection = Connection(server=f"unix://{api.embedded.paths.api_socket}") if api.embedded else None
    async with Client(connection) if connection else api.client() as one:
        yield one


@pytest.fixture
def operator_namespace(api: Any) -> str:
    """Return what the operator looks at; a real server has the remains of other tests in other places."""
    return "" if api.embedded else str(api.namespace)


@pytest.fixture
async def cluster(
    client: Client, api: Any, operator_namespace: str, tmp_path: Path
) -> AsyncIterator[Cluster]:
    """A cluster with the MPIJob kind, controllers and operator, and no node."""
    for crd in crds():
        await apply(client, CRDS, crd)
        await _until_served(client)
    tasks = []
    with contextlib.ExitStack() as others:
        operator = None
        if operator_under_test.COMMAND:
            log = tmp_path / "operator.log"
            others.enter_context(operator_under_test.OperatorProcess(api.kubeconfig, api.namespace, log))
        else:
            operator = Operator(client, namespace=operator_namespace)
            tasks.append(asyncio.create_task(operator.run()))
        if api.embedded:
            await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}})
            tasks.append(asyncio.create_task(run_controllers(client, STORED_KINDS)))
        yield Cluster(client, operator, api.namespace)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def node(cluster: Cluster) -> AsyncIterator[str]:
    """Return a node whose agent the test plays: pods that are bound to it go when the test says so."""
    name = f"node-of-{cluster.namespace}"
    await cluster.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    await cluster.set_node_ready(name, "True")
    yield name
    with contextlib.suppress(NotFound):
        await cluster.client.delete(NODES, name)


async def _until_served(client: Client) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await client.list(MPIJOBS, limit=1)
                return
            except NotFound:
                await asyncio.sleep(0.01)
