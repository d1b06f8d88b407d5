"""What tests of several folders share: an API server to talk to, embedded or of a real Kubernetes."""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from control_plane import ControlPlane, NotBuilt

from gangline.api.crds import crds
from gangline.api.resources import NAMESPACES, SERVICE_ACCOUNTS
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.server import ApiServer
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.kube.errors import NotFound

NAMESPACE_LIMIT_S = 60.0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave real clusters alone unless they are asked for: ``KUBECONFIG`` may name anybody's."""
    for marker in ("kubernetes", "nodes", "gangs"):
        if marker in config.option.markexpr:
            continue
        skip = pytest.mark.skip(reason=f"uses a real Kubernetes; `make test-{marker}` runs it")
        for item in items:
            if item.get_closest_marker(marker):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def torch_python() -> str:
    """A Python with torch, and with neither Gangline nor an MPI (see tests/train_environment.py)."""
    python = os.environ.get("GANGLINE_TRAIN_PYTHON")
    if not python:
        pytest.skip("GANGLINE_TRAIN_PYTHON is not set: run `make test-train`")
    return python


@dataclass
class RealCluster:
    """A real cluster; ``plane`` is None when it was given to us."""

    kubeconfig: Path
    plane: ControlPlane | None = None


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[RealCluster]:
    """Return the cluster of ``KUBECONFIG``, else one that is started once."""
    if given := os.environ.get("KUBECONFIG"):
        yield RealCluster(Path(given.split(os.pathsep)[0]))
        return
    plane = ControlPlane(crds=crds())
    try:
        plane.start()
    except NotBuilt as error:
        pytest.fail(str(error))
    try:
        yield RealCluster(plane.kubeconfig, plane)
    finally:
        plane.stop()


@dataclass
class Api:
    """An API server, and a namespace of the test's own in it.

    Attributes:
        kubeconfig: of an administrator.
        namespace: exists and is empty.
        embedded: the embedded server, in this process; None for a real one.
        restart: kill the server and start it again where it was; None where that is not ours to do.
    """

    kubeconfig: Path
    namespace: str
    embedded: ApiServer | None = None
    restart: Callable[[], Awaitable[None]] | None = None

    def client(self) -> Client:
        """Return a client of the administrator, to be closed by the caller."""
        return Client(load_kubeconfig(self.kubeconfig))


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)])
async def api(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    """Run a test against the embedded server and, where asked for, against a real one."""
    if request.param == "real":
        real: RealCluster = request.getfixturevalue("real_cluster")
        api = Api(real.kubeconfig, f"gangline-{uuid.uuid4().hex[:8]}")
        if plane := real.plane:

            async def restart_real() -> None:
                plane.restart_apiserver()  # not in another thread: its children end with it

            api.restart = restart_real
        async with api.client() as client:
            await _make_namespace(client, api.namespace)
            yield api
            await client.delete(NAMESPACES, api.namespace)
        return
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    server = ApiServer(ClusterPaths.of("test"))
    await server.start()
    api = Api(server.paths.kubeconfig, "default", server)

    async def restart() -> None:
        assert api.embedded
        await api.embedded.stop()
        api.embedded = ApiServer(server.paths, port=server.port)
        await api.embedded.start()

    api.restart = restart
    yield api
    await api.embedded.stop()
    shutil.rmtree(server.paths.run, ignore_errors=True)


async def _make_namespace(client: Client, name: str) -> None:
    """Make a namespace and wait for what its pods need."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    async with asyncio.timeout(NAMESPACE_LIMIT_S):
        while True:
            try:
                await client.get(SERVICE_ACCOUNTS, "default", name)
                return
            except NotFound:
                await asyncio.sleep(0.01)
