"""The option ``--volume``: a folder of the user's as the volume of a claim."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.kube.client import Client


def read_volumes(texts: Sequence[str]) -> dict[tuple[str, str], Path]:
    """Return folders by namespace and name of their claims.

    Raises:
        UserError: an option cannot be read, or names no folder.
    """
    found: dict[tuple[str, str], Path] = {}
    for text in texts:
        name, _, folder = text.partition("=")
        namespace, _, claim = name.rpartition("/")
        if not claim or not folder:
            raise UserError(f"--volume {text}: write NAME=FOLDER", hint="--volume dataset=~/data")
        path = Path(folder).expanduser().absolute()
        if not path.is_dir():
            raise UserError(f"--volume {text}: `{path}` is no folder", hint=f"mkdir -p {path}")
        found[namespace or "default", claim] = path
    return found


def bind_volumes(cluster: Cluster, folders: dict[tuple[str, str], Path]) -> list[str]:
    """Make each folder the volume of its claim, and the claim if need be; return a line for each.

    Raises:
        UserError: a claim has another volume already.
    """

    async def bind_all(client: Client) -> list[str]:
        return [await _bind(client, namespace, name, path) for (namespace, name), path in folders.items()]

    return cluster.call(bind_all) if folders else []


async def _bind(client: Client, namespace: str, name: str, path: Path) -> str:
    from gangline.api.core import ObjectMeta
    from gangline.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
    from gangline.cluster.controllers.storage.plan import folder_volume
    from gangline.kube.errors import AlreadyExists

    volume = name if namespace == "default" else f"{namespace}-{name}"
    body = folder_volume(
        volume, str(path), shutil.disk_usage(path).total, ObjectMeta(name=name, namespace=namespace)
    )
    try:
        await client.create(PERSISTENT_VOLUMES, body)
    except AlreadyExists:
        known = ((await client.get(PERSISTENT_VOLUMES, volume)).get("spec") or {}).get("hostPath") or {}
        if known.get("path") != str(path):
            raise UserError(
                f"--volume {name}={path}: claim `{name}` has the folder `{known.get('path')}`",
                hint=f"kubectl delete pvc/{name} pv/{volume} -n {namespace} ends that; the folder stays",
            ) from None
    kind = PERSISTENT_VOLUME_CLAIMS
    claim = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Mi"}},
            "storageClassName": "",
            "volumeName": volume,
        },
    }
    try:
        await client.create(kind, claim)
    except AlreadyExists:
        other = ((await client.get(kind, name, namespace)).get("spec") or {}).get("volumeName")
        if other not in (None, "", volume):
            raise UserError(
                f"--volume {name}={path}: claim `{name}` has the volume `{other}`",
                hint=f"kubectl delete pvc/{name} -n {namespace}, then try again",
            ) from None
    return f"claim `{name}`: {path}"
