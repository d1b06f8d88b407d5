"""The server of ``cluster/server`` as the API of the one-machine cluster, in this process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from gangline.cli.serve.control_plane import Objects, RunServices, Work
from gangline.cluster.daemon.cluster_facts import ClusterFacts
from gangline.cluster.paths import ClusterPaths

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gangline.cluster.runs.bounds import Bounds
    from gangline.kube.http_paths import PathAnswer
    from gangline.kube.verbs import ObjectClient


class OwnServer:
    """See ``control_plane.ControlPlane``; all controllers run beside it."""

    def __init__(self, paths: ClusterPaths, facts: ClusterFacts, addresses: list[str]) -> None:
        self._paths, self._facts, self._addresses = paths, facts, addresses

    async def prepare(self) -> None:
        """Nothing: the agent reaches it over its socket."""

    async def start(self) -> None:
        """Make certificates while the server's libraries are imported, and listen."""
        certificates = await _make_certificates(self._paths, self._addresses)
        with _no_authorities():
            from gangline.cluster.server.server import ApiServer
        from gangline.cluster.daemon.readiness import CONTROLLERS_STARTED

        self._server = ApiServer(self._paths, port=self._facts.port, extra_addresses=self._addresses)
        if certificates is not None:
            await certificates.wait()  # the server makes what is then missing, and says why it cannot
        await self._server.start()
        self.show(CONTROLLERS_STARTED, _not_started)
        services = asyncio.to_thread(import_module, "gangline.cli.serve.services")
        self._services = asyncio.create_task(services)

    def first_objects(self, address: str) -> Objects:
        """Return the Service of the API server itself."""
        from gangline.cluster.daemon.api_service import api_service

        return api_service(address, self._facts.port)

    async def import_services(self) -> RunServices:
        """Return them when the import has ended that went on meanwhile."""
        run: RunServices = (await self._services).run_services
        return run

    def controllers(self, client: ObjectClient, bounds: Bounds) -> Work:
        """Return all of them."""
        from gangline.cluster.controllers.all import run_controllers
        from gangline.cluster.runs.history import History
        from gangline.cluster.server.resources import STORED_KINDS

        paths = self._paths
        authority = (paths.certificates / "ca.crt").read_text()
        in_use = self._server.on_kind_in_use
        return run_controllers(client, STORED_KINDS, History(paths), bounds, authority, paths.volumes, in_use)

    def show(self, path: str, answer: Callable[[], Awaitable[PathAnswer]]) -> None:
        """Answer it beside the API's own documents."""
        self._server.context.pages[path] = answer

    def figures(self) -> Iterable[tuple[str, Iterable[Metric]]]:
        """Return those of the API server."""
        from gangline.cluster.server.server_metrics import server_metrics

        yield "apiserver", server_metrics(self._server.context)

    async def keep(self) -> None:
        """Wait: it is this process."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Commit, and let go of the store."""
        await self._server.stop()


async def _not_started() -> PathAnswer:
    from gangline.kube.http_paths import PathAnswer

    return PathAnswer(503, b"not started yet")


async def _make_certificates(paths: ClusterPaths, addresses: list[str]) -> asyncio.subprocess.Process | None:
    """Start a process that makes the server's certificates while the server's libraries are imported.

    None when there is nothing to make.
    """
    import socket

    from gangline.cluster.certificates import Certificates

    names = [*addresses, socket.gethostname()]
    if Certificates(paths.certificates, names).are_current():
        return None
    module = "gangline.cluster.certificates"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, str(paths.certificates), *names, stderr=asyncio.subprocess.DEVNULL
    )


@contextmanager
def _no_authorities() -> Iterator[None]:
    """Let aiohttp be imported without the machine's certificate authorities.

    It loads them into two TLS contexts for a client's use (40 ms, 2 MB); the server has no such client.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)
