"""A server of a test made ready for jobs: kinds of jobs and gangs; controllers on the embedded one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from played_job import JOB_RESOURCES

from gangline.api.crds import crds, gang_crds
from gangline.api.resources import CRDS, NODES, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.cluster.controllers.all import run_controllers
from gangline.cluster.server.resources import STORED_KINDS
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.config import Connection, load_kubeconfig
from gangline.kube.errors import NotFound


@asynccontextmanager
async def prepared(client: Client, *, embedded: bool) -> AsyncIterator[None]:
    """Have the kinds of jobs and gangs served and, on the embedded server, the controllers running."""
    for crd in [*crds(), *gang_crds()]:
        await apply(client, CRDS, crd)
    async with asyncio.timeout(60):
        for resource in (*JOB_RESOURCES, SCHEDULER_PLUGINS_POD_GROUPS):
            while True:
                with contextlib.suppress(NotFound):
                    await client.list(resource, limit=1)
                    break
                await asyncio.sleep(0.01)
    if not embedded:
        yield
        return
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}})
    controllers = asyncio.create_task(run_controllers(client, STORED_KINDS))
    try:
        yield
    finally:
        controllers.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await controllers


def direct(api: Any) -> Connection:
    """Return a connection to a test's server without anything in between."""
    if api.embedded:
        return Connection(server=f"unix://{api.embedded.paths.api_socket}")
    return load_kubeconfig(api.kubeconfig)
