"""MPIJobs in real containers on two real nodes, made by an operator that runs as a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane import NotBuilt
from debian import CannotMake
from mpi_images import image_name, mpi_image
from node import missing
from nodes import Nodes
from operator_under_test import OperatorProcess

from gangline.api.crds import crds, gang_crds
from gangline.api.resources import MPIJOBS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Resource
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.kube.errors import NotFound

WAIT_S = 100.0
LIMIT_S = 300
"""Of one test, with the start or the end of the nodes."""

_POLL_S = 0.05
ROOT_PATH = "/root/.ssh"
USER_PATH = "/home/mpiuser/.ssh"
PI = ["python3", "/opt/pi.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.nodes)
            item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Return two nodes, started once."""
    if reason := missing():
        pytest.skip(reason)
    cluster = Nodes(crds=[*crds(), *gang_crds()])
    try:
        cluster.start()
    except NotBuilt as error:
        pytest.fail(str(error))
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def image(nodes: Nodes) -> Callable[[str], str]:
    """Return what puts an image on the nodes: ``image("openmpi")`` is the name for pods."""
    loaded = set()

    def load(mpi: str) -> str:
        if mpi not in loaded:
            try:
                nodes.load(mpi_image(mpi))
            except CannotMake as error:
                pytest.skip(str(error))
            loaded.add(mpi)
        return image_name(mpi)

    return load


@pytest.fixture
def kubectl(nodes: Nodes) -> Callable[..., str]:
    """Run kubectl as an administrator; its output."""

    def run(*words: str) -> str:
        command = ["kubectl", "--kubeconfig", str(nodes.kubeconfig), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def make_job() -> Callable[..., dict[str, Any]]:
    """Return the builder of jobs."""
    return mpijob


def mpijob(
    image: str,
    *,
    name: str = "pi",
    workers: int = 2,
    command: list[str] | None = None,
    as_user: bool = False,
    args: bool = False,
    probe: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    """Return an MPIJob.

    Args:
        image: of both roles.
        name: of the job.
        workers: pods.
        command: of the launcher; the default estimates pi on every worker.
        as_user: run as user 1000 instead of root.
        args: leave the image's entrypoint before the command.
        probe: have workers be ready only when their sshd listens.
        spec: laid over the job's.
    """
    root = ["--allow-run-as-root"] if "openmpi" in image and not as_user else []
    words = command or ["mpirun", *root, "-n", str(workers or 1), *PI]
    user = {"securityContext": {"runAsUser": 1000}} if as_user else {}
    launcher = {"name": "launcher", "image": image, "args" if args else "command": words, **user}
    worker: dict[str, Any] = {"name": "worker", "image": image, **user}
    if as_user:
        worker["command"] = ["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"]
    brief = {"terminationGracePeriodSeconds": 1}
    replicas: dict[str, Any] = {"Launcher": {"template": {"spec": {"containers": [launcher], **brief}}}}
    if workers:
        if probe:
            worker["readinessProbe"] = {"tcpSocket": {"port": 2222}, "periodSeconds": 1}
        replicas["Worker"] = {"replicas": workers, "template": {"spec": {"containers": [worker], **brief}}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "sshAuthMountPath": USER_PATH if as_user else ROOT_PATH,
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": replicas,
            **spec,
        },
    }


class Jobs:
    """A namespace of the test's own, and what it does there."""

    def __init__(self, nodes: Nodes, client: Client, namespace: str, operator: OperatorProcess) -> None:
        self.nodes, self.client, self.namespace, self.operator = nodes, client, namespace, operator

    async def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        job = {**job, "metadata": {**job["metadata"], "namespace": self.namespace}}
        return await self.client.create(MPIJOBS, job)

    async def edit(self, patch: dict[str, Any], name: str = "pi") -> None:
        await self.client.patch(MPIJOBS, name, patch, self.namespace)

    async def until(self, found: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Wait for something true, at most 100 s, and return it."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not (result := await found()):
                    assert not self.operator.ended, f"the operator ended: {self.operator.log.read_text()}"
                    await asyncio.sleep(_POLL_S)
                return result
        except TimeoutError:
            raise AssertionError(f"no {what} in {WAIT_S} s:\n{await self.describe()}") from None

    async def get(self, resource: Resource, name: str) -> dict[str, Any] | None:
        try:
            return await self.client.get(resource, name, self.namespace)
        except NotFound:
            return None

    async def condition(self, type_: str, name: str = "pi", status: str = "True") -> dict[str, Any]:
        async def found() -> Any:
            job = await self.client.get(MPIJOBS, name, self.namespace)
            conditions = job.get("status", {}).get("conditions", [])
            return next((one for one in conditions if (one["type"], one["status"]) == (type_, status)), None)

        return await self.until(found, f"{type_}={status} of {name}")

    async def pods(self, role: str = "", name: str = "pi") -> list[dict[str, Any]]:
        selector = f"training.kubeflow.org/job-name={name}"
        selector += f",training.kubeflow.org/job-role={role}" if role else ""
        return (await self.client.list(PODS, self.namespace, label_selector=selector)).items

    async def log(self, pod: str) -> str:
        return b"".join([piece async for piece in self.client.logs(pod, self.namespace)]).decode()

    async def launcher_log(self, name: str = "pi") -> str:
        (launcher,) = await self.pods("launcher", name)
        return await self.log(launcher["metadata"]["name"])

    async def describe(self) -> str:
        """Return what tells why a job does not do what a test waits for."""
        lines = []
        for job in (await self.client.list(MPIJOBS, self.namespace)).items:
            lines.append(f"{job['metadata']['name']}: {job.get('status')}")
        for pod in (await self.client.list(PODS, self.namespace)).items:
            lines.append(f"{pod['metadata']['name']}: {pod['status']}")
            if "launcher" in pod["metadata"]["name"] and pod["status"]["phase"] != "Pending":
                lines.append(await self.log(pod["metadata"]["name"]))
        return "\n".join([*lines, self.operator.log.read_text()[-2000:]])


@pytest.fixture
async def jobs(nodes: Nodes, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Jobs]:
    """Return a namespace with an operator; ``@pytest.mark.parametrize("jobs", [OPTIONS], indirect=True)``."""
    options: list[str] = getattr(request, "param", [])
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    async with Client(load_kubeconfig(nodes.kubeconfig)) as client:
        await client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        with OperatorProcess(nodes.kubeconfig, namespace, tmp_path / "operator.log", *options) as operator:
            found = Jobs(nodes, client, namespace, operator)
            await found.until(lambda: found.get(SERVICE_ACCOUNTS, "default"), "service account")
            yield found
        await client.delete(NAMESPACES, namespace)
