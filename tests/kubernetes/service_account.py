"""A service of Gangline with the rights of its manifest in deploy/ alone, on a real API server with RBAC."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from gangline.api.resources import CRDS, NAMESPACES, SERVICE_ACCOUNTS
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.kube.discovery import resource_for
from gangline.kube.errors import NotFound
from gangline.kube.leader_service import LeaderService

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
WAIT_S = 60.0


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Wait until the condition gives something true, and return it; what it asks for may not be there yet."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with contextlib.suppress(NotFound):
                if found := await condition():
                    return found
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def installed(
    kubeconfig: Path, manifest: str, definitions: Iterable[dict[str, Any]]
) -> AsyncIterator[Client]:
    """Apply definitions and a manifest of deploy/, and yield an administrator."""
    async with Client(load_kubeconfig(kubeconfig)) as admin:
        for crd in definitions:
            await apply(admin, CRDS, crd)
        for obj in yaml.safe_load_all((DEPLOY / manifest).read_text()):
            await apply(admin, await resource_for(admin, obj["apiVersion"], obj["kind"]), obj)
        yield admin


async def make_namespace(admin: Client, name: str) -> None:
    """Make a namespace, and wait for what its pods need."""
    await admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await until(lambda: admin.get(SERVICE_ACCOUNTS, "default", name))


@contextlib.asynccontextmanager
async def serving(
    admin: Client, kubeconfig: Path, account: str, service: Callable[[Client], LeaderService]
) -> AsyncIterator[Client]:
    """Run a service as ``NAMESPACE/NAME``, an account of the manifest, and yield its client."""
    namespace, _, name = account.partition("/")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await admin.create_subresource(SERVICE_ACCOUNTS, name, "token", request, namespace)
    connection = replace(
        load_kubeconfig(kubeconfig), token=answer["status"]["token"], client_cert=None, client_key=None
    )
    async with Client(connection) as client:
        task = asyncio.create_task(service(client).run())
        yield client
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def refusals(client: Client) -> dict[tuple[str, str], int]:
    """Return what the API server has refused to a client."""
    return {key: count for key, count in client.answers().items() if key[1] in ("401", "403")}
