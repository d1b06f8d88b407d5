"""docker and podman: their command lines are the same for what is needed here.

Their drivers show an image as folders of layers (``GraphDriver`` of ``image inspect``). Where they show none,
as docker over containerd's snapshots, the files are exported once into a folder of the cluster.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from gangline.cluster.images.image import Image
from gangline.cluster.images.image_map import tagged
from gangline.cluster.images.runtime.image_store import (
    PULL_TIMEOUT_S,
    RuntimeFailedError,
    make_image,
    run_command,
)
from gangline.cluster.paths import ClusterPaths

_ABSENT = ("no such image", "no such object", "image not known", "failed to find image")


class DockerStore:
    """The images of the user's docker or podman.

    Args:
        name: ``docker`` or ``podman``, which is also the program.
        paths: of the cluster, for files that have to be exported.
    """

    def __init__(self, name: str, paths: ClusterPaths) -> None:
        self.name = name
        self._exports = paths.state / "images"
        self._exporting = asyncio.Lock()

    async def open(self) -> None:
        """Nothing is to be started: docker's daemon is the user's."""

    async def find(self, reference: str) -> Image | None:
        """Return the image if it is here."""
        try:
            text = await run_command([self.name, "image", "inspect", tagged(reference)])
        except RuntimeFailedError as error:
            if any(words in str(error).lower() for words in _ABSENT):
                return None
            raise
        found = json.loads(text)[0]
        layers = layers_of_driver(found)
        if not layers or not all(Path(layer).is_dir() for layer in layers):
            layers = [str(await self._export(found["Id"].removeprefix("sha256:"), reference))]
        return make_image(reference, layers, found.get("Config") or {})

    async def pull(self, reference: str) -> None:
        """Fetch the image."""
        await run_command([self.name, "pull", "--quiet", tagged(reference)], timeout_s=PULL_TIMEOUT_S)

    async def close(self) -> None:
        """Nothing was started."""

    async def _export(self, image_id: str, reference: str) -> Path:
        """Write all files of an image into a folder, once for each image."""
        folder = self._exports / image_id
        async with self._exporting:
            if folder.is_dir():
                return folder
            draft = folder.with_suffix(".new")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            container = (await run_command([self.name, "create", tagged(reference), "-"])).split()[-1]
            try:
                archive = draft.with_suffix(".tar")
                export = [self.name, "export", "--output", str(archive), container]
                await run_command(export, timeout_s=PULL_TIMEOUT_S)
                unpack = ["tar", "-x", "--numeric-owner", "-p", "-f", str(archive), "-C", str(draft)]
                await run_command(unpack, timeout_s=PULL_TIMEOUT_S)
                archive.unlink()
            finally:
                await run_command([self.name, "rm", "--force", container])
            draft.rename(folder)
        return folder


def layers_of_driver(inspected: dict[str, Any]) -> list[str]:
    """Return the folders of an image, the top one first; empty when its driver shows none.

    Args:
        inspected: one item of ``image inspect``.
    """
    driver = inspected.get("GraphDriver") or {}
    data = driver.get("Data") or {}
    if driver.get("Name") not in ("overlay", "overlay2") or not data.get("UpperDir"):
        return []
    lower = str(data.get("LowerDir") or "")
    return [str(data["UpperDir"]), *(path for path in lower.split(":") if path)]
