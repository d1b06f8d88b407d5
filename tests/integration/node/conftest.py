"""A cluster of API server (in this process) and node agent (a process of its own), in each isolation mode."""

import asyncio
import contextlib
import functools
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gangline.api.resources import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from gangline.cluster.daemon.cluster_facts import free_subnet, read_routes
from gangline.cluster.images.local_images import LocalImages
from gangline.cluster.node.isolation import refusal_of
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.server import ApiServer
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.errors import AlreadyExists, NotFound

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from outside_world import OutsideWorld, why_not

WAIT_S = 60.0
AGENT = """
import asyncio, contextlib, signal, sys
from gangline.cluster.node.main import run_agent
from gangline.cluster.paths import ClusterPaths

async def main():
    agent = asyncio.create_task(run_agent(ClusterPaths.of("test"), isolation=sys.argv[1]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, agent.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await agent

asyncio.run(main())
"""


async def wait_for(check: Callable[[], Awaitable[Any] | Any], what: str, limit_s: float = WAIT_S) -> Any:
    """Return the first true result of a check; fail after the limit."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while True:
        result = check()
        if isinstance(result, Awaitable):
            result = await result
        if result:
            return result
        assert loop.time() < deadline, f"waited {limit_s} s for {what}"
        await asyncio.sleep(0.01)


class LocalCluster:
    """What a test does with the cluster."""

    def __init__(
        self, paths: ClusterPaths, server: ApiServer, client: Client, mode: str, enter: Sequence[str] = ()
    ) -> None:
        self.paths = paths
        self.server = server
        self.client = client
        self.mode = mode
        self.enter = enter
        self.agent: subprocess.Popen[bytes] | None = None
        self.images = LocalImages()

    wait_for = staticmethod(wait_for)

    async def start_agent(self) -> None:
        """Start the agent and wait until it has written what it found."""
        report = self.paths.state / "agent.json"
        report.unlink(missing_ok=True)
        with self.paths.log("agent").open("ab") as log:
            self.agent = subprocess.Popen(
                [*self.enter, sys.executable, "-c", AGENT, self.mode],
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                umask=0o077,  # of careful users
            )
        await wait_for(lambda: report.exists() or self.agent_died(), "the agent's report")

    def agent_died(self) -> bool:
        assert self.agent is not None
        if self.agent.poll() is None:
            return False
        pytest.fail(f"the agent died:\n{self.paths.log('agent').read_text()[-3000:]}")

    def stop_agent(self, number: int = signal.SIGTERM) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.send_signal(number)
            self.agent.wait(WAIT_S)

    async def create(self, resource: Any, name: str, **fields: Any) -> dict[str, Any]:
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": "default"} | fields.pop("metadata", {}),
        }
        return await self.client.create(resource, body | fields)

    async def create_pod(
        self, name: str, *command: str, container: Any = None, **spec: Any
    ) -> dict[str, Any]:
        """Create a pod that is bound to the node already."""
        main = {"name": "main", "image": "gangline/base", "command": list(command)} | (container or {})
        metadata = spec.pop("metadata", {})
        whole = {"nodeName": "node-0", "restartPolicy": "Never", "containers": [main]} | spec
        return await self.create(PODS, name, spec=whole, metadata=metadata)

    async def pod(self, name: str) -> dict[str, Any] | None:
        try:
            return await self.client.get(PODS, name, "default")
        except NotFound:
            return None

    async def wait_phase(self, name: str, *phases: str, limit_s: float = WAIT_S) -> dict[str, Any]:
        async def check() -> Any:
            self.agent_died()
            pod = await self.pod(name)
            return pod if pod is not None and pod["status"]["phase"] in phases else None

        found: dict[str, Any] = await wait_for(check, f"pod {name} to be {phases}", limit_s)
        return found

    async def logs(self, name: str) -> str:
        chunks = [chunk async for chunk in self.client.logs(name, "default")]
        return b"".join(chunks).decode()

    async def delete(self, name: str, **options: Any) -> None:
        await self.client.delete(PODS, name, "default", **options)

    async def wait_gone(self, name: str) -> None:
        async def check() -> bool:
            return await self.pod(name) is None

        await wait_for(check, f"pod {name} to be gone")

    def marked_processes(self) -> list[int]:
        from gangline.cluster.node.shim.processes import is_zombie, marked

        return [pid for pid in marked("GANGLINE_CLUSTER_ID", self.paths.cluster_id) if not is_zombie(pid)]


def skip_unless_possible(mode: str) -> None:
    if refusal := refusal_of(mode):  # type: ignore[arg-type]
        pytest.skip(f"{mode} isolation: {refusal}")


@contextlib.asynccontextmanager
async def local_cluster(
    paths: ClusterPaths, mode: str, enter: Sequence[str] = ()
) -> AsyncIterator[LocalCluster]:
    """Start server, node and agent (by the words of ``enter``, if any); end everything afterwards."""
    subnet = free_subnet("", paths.cluster_id, read_routes())  # other clusters, and tests, may have theirs
    gateway = str(ipaddress.IPv4Network(subnet)[1])
    server = ApiServer(paths, extra_addresses=[gateway] if mode == "network" else [])
    await server.start()
    paths.facts.write_text(json.dumps({"port": server.port, "subnet": subnet}))
    async with Client(Connection(server=f"unix://{paths.api_socket}")) as client:
        cluster = LocalCluster(paths, server, client, mode, enter)
        for resource, body in (
            (NAMESPACES, {"metadata": {"name": "kube-node-lease"}}),
            (SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": "default"}}),
            (NODES, {"metadata": {"name": "node-0", "labels": {"gangline.dev/agent": "local"}}}),
        ):
            with contextlib.suppress(AlreadyExists):
                await client.create(resource, {"apiVersion": "v1", "kind": resource.kind} | body)
        try:
            await cluster.start_agent()
            yield cluster
        finally:
            if cluster.agent is not None and cluster.agent.poll() is not None:
                await cluster.start_agent()  # to end what a killed one has left
            for pod in (await client.list(PODS)).items:
                name = pod["metadata"]["name"]
                with contextlib.suppress(NotFound):
                    await client.delete(PODS, name, pod["metadata"]["namespace"], grace_period_s=0)
            with contextlib.suppress(AssertionError):
                await wait_for(lambda: not list(paths.pods.iterdir()), "pods to end", 10)
            cluster.stop_agent()
            await server.stop()
            shutil.rmtree(paths.run, ignore_errors=True)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPaths:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    return ClusterPaths.of("test")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[OutsideWorld]:
    """A machine and an outside, in network namespaces of their own."""
    if refusal := why_not():
        pytest.skip(refusal)
    folder = tmp_path / "world"
    folder.mkdir()
    world = OutsideWorld(folder)
    try:
        world.start()
        yield world
    finally:
        world.stop()


@pytest.fixture
def start_cluster(paths: ClusterPaths) -> Callable[..., contextlib.AbstractAsyncContextManager[LocalCluster]]:
    """Return ``local_cluster`` for the test's paths: mode, and the words by which its agent is started."""
    return functools.partial(local_cluster, paths)


@pytest.fixture(params=["network", "user", "plain"])
async def cluster(request: pytest.FixtureRequest, paths: ClusterPaths) -> AsyncIterator[LocalCluster]:
    """A cluster in each mode that works for this user."""
    skip_unless_possible(request.param)
    async with local_cluster(paths, request.param) as running:
        yield running


@pytest.fixture
async def plain(paths: ClusterPaths) -> AsyncIterator[LocalCluster]:
    """A cluster of plain processes, for what is the same in every mode."""
    async with local_cluster(paths, "plain") as running:
        yield running
