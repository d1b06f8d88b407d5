"""Where pods of a cluster tell ``gangline operator`` how far their training is, and its certificate."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from gangline.api.resources import SECRETS
from gangline.api.training.job import StatusEndpoint
from gangline.cluster.certificates import Certificates
from gangline.cluster.private_files import write_private
from gangline.errors import UserError
from gangline.kube.errors import AlreadyExists, NotFound
from gangline.kube.http_paths import serve_posts
from gangline.kube.verbs import ObjectClient
from gangline.operator.trainer_status import TrainerStatusDesk

CERTIFICATE_SECRET: Final = "gangline-operator-status"
"""Holds the certificate and its authority: operators of one cluster share them, as pods know one of them."""


@asynccontextmanager
async def listening(
    client: ObjectClient, namespace: str, address: str, port: int, host: str
) -> AsyncIterator[StatusEndpoint]:
    """Answer pods of a cluster while the context is open; its value is what they are told.

    Args:
        client: of the operator.
        namespace: of the Secret with the certificate, which is made where it is missing.
        address: to listen on.
        port: to listen on; 0 takes a free one.
        host: name by which pods reach it, on the same port.

    Raises:
        UserError: the port cannot be listened on.
        ApiError: the Secret can be neither read nor made.
    """
    with TemporaryDirectory(prefix="gangline-operator-") as folder:
        certificates = Certificates(Path(folder), [host])
        await _share(client, namespace, Path(folder), certificates)
        sock = _bound(address, port)
        authority = certificates.authority_pem.decode()
        async with serve_posts([sock], certificates.ssl_context(), TrainerStatusDesk(client).take):
            yield StatusEndpoint(url=f"https://{host}:{sock.getsockname()[1]}", authority=authority)


def _bound(address: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        )
    except OSError as error:
        raise UserError(
            f"cannot listen on {address}:{port}: {error.strerror or error}",
            hint="choose another --status-port",
        ) from error


async def _share(client: ObjectClient, namespace: str, folder: Path, certificates: Certificates) -> None:
    """Put the certificate of the Secret into a folder, renewed or made where it must be."""
    found = await _read(client, namespace, folder)
    if certificates.are_current():
        return
    await asyncio.to_thread(certificates.ensure)
    data = {file.name: base64.b64encode(file.read_bytes()).decode() for file in folder.iterdir()}
    metadata = {"name": CERTIFICATE_SECRET, "namespace": namespace}
    wanted = {"apiVersion": "v1", "kind": SECRETS.kind, "metadata": metadata, "data": data}
    if found:
        await client.patch(SECRETS, CERTIFICATE_SECRET, {"data": data}, namespace)
        return
    try:
        await client.create(SECRETS, wanted)
    except AlreadyExists:  # another operator was faster
        await _read(client, namespace, folder)


async def _read(client: ObjectClient, namespace: str, folder: Path) -> bool:
    """Put what the Secret has into a folder; return whether there is one."""
    try:
        found = await client.get(SECRETS, CERTIFICATE_SECRET, namespace)
    except NotFound:
        return False
    for name, text in (found.get("data") or {}).items():
        write_private(folder / name, base64.b64decode(text))
    return True
