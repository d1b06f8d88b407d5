"""What serves images on the nodes of this agent: local images, the cluster's image map, its runtime."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gangline.api.resources import CONFIG_MAPS
from gangline.cluster.images.image import Image
from gangline.cluster.images.image_map import MAP_NAME, MAP_NAMESPACE, RUNTIMES, ImageMap, nothing_serves
from gangline.cluster.images.local_images import BASE_IMAGE, LocalImages, local_image_of
from gangline.cluster.images.runtime.containerd import ContainerdStore
from gangline.cluster.images.runtime.docker import DockerStore
from gangline.cluster.images.runtime.image_store import ImageStore, RuntimeFailedError
from gangline.cluster.images.shipped_images import BENCH_LIMITS_VARIABLE
from gangline.cluster.node.isolation import Isolation
from gangline.cluster.node.pods.pod_images import ImageUnavailableError
from gangline.cluster.paths import ClusterPaths
from gangline.kube.errors import ApiError, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

PULLS_MAX = 3
"""At the same time, of different images."""


def _limited(image: Image, known: ImageMap) -> Image:
    """Return an image whose benchmark programs learn their limits."""
    if not known.bench_limits or not image.rewritten:
        return image
    return replace(image, env={**image.env, BENCH_LIMITS_VARIABLE: known.bench_limits})


class ImageSources:
    """See the module's text.

    Args:
        client: of the API, to read the map.
        paths: of the cluster.
        isolation: of its pods; containers of a runtime need ``network``.
        local: the local images.
    """

    def __init__(
        self,
        client: ObjectClient,
        paths: ClusterPaths,
        isolation: Isolation,
        local: LocalImages | None = None,
    ) -> None:
        self._client = client
        self._paths = paths
        self._isolation = isolation
        self.local = local or LocalImages(shipped=paths.state / "shipped")
        self._stores: dict[str, ImageStore] = {}
        self._pulls: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._preparing: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(PULLS_MAX)

    async def serve(self, reference: str) -> Image | ImageStore:
        """Return the image, or the runtime to ask for it. Cost: a request, but for ``gangline/base``.

        Raises:
            ImageUnavailableError: nothing serves it.
        """
        if local_image_of(reference) == BASE_IMAGE:
            return self.local.base
        known = await self._map()
        if served := known.find(reference):
            if not Path(served.path).is_dir():
                text = f'image "{reference}" is served by {served}, which is gone'
                raise ImageUnavailableError("ErrImageNeverPull", text)
            return _limited(self.local.of_user(reference, served), known)
        if known.runtime:
            return self._store(known.runtime)
        if found := self.local.find(reference):
            return _limited(found, known)
        rule, hint = nothing_serves(reference)
        raise ImageUnavailableError("ErrImageNeverPull", f'image "{reference}": {rule}: {hint}')

    def prepare(self, runtime: str) -> None:
        """Start what a runtime needs, so that images can be loaded into it before the first job."""
        if runtime in RUNTIMES and self._isolation == "network":
            self._preparing = asyncio.create_task(self._prepare(self._store(runtime)))

    async def _prepare(self, store: ImageStore) -> None:
        with contextlib.suppress(RuntimeFailedError):  # whoever wants an image is told
            await store.open()

    async def pull(self, store: ImageStore, reference: str) -> None:
        """Pull an image; pods that want the same one at the same time share the pull.

        Raises:
            RuntimeFailedError: it cannot be had.
        """
        key = (store.name, reference)
        task = self._pulls.get(key)
        if task is None:
            task = self._pulls[key] = asyncio.create_task(self._pull(store, reference))
            task.add_done_callback(lambda done: self._forget(key, done))
        await asyncio.shield(task)

    async def close(self) -> None:
        """End pulls and what was started for the runtimes; running containers stay."""
        tasks = [*self._pulls.values(), *([self._preparing] if self._preparing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for store in self._stores.values():
            await store.close()

    async def _map(self) -> ImageMap:
        try:
            return ImageMap.from_object(await self._client.get(CONFIG_MAPS, MAP_NAME, MAP_NAMESPACE))
        except NotFound:
            return ImageMap()
        except ApiError as error:
            raise ImageUnavailableError("ImageInspectError", f"cannot read the image map: {error}") from error

    def _store(self, runtime: str) -> ImageStore:
        if self._isolation != "network":
            text = f"containers of {runtime} need isolation `network`, this cluster has `{self._isolation}`"
            raise ImageUnavailableError("ErrImageNeverPull", text)
        if runtime not in self._stores:
            is_containerd = runtime == "containerd"
            self._stores[runtime] = (
                ContainerdStore(self._paths) if is_containerd else DockerStore(runtime, self._paths)
            )
        return self._stores[runtime]

    async def _pull(self, store: ImageStore, reference: str) -> None:
        async with self._turns:
            await store.pull(reference)

    def _forget(self, key: tuple[str, str], done: asyncio.Task[None]) -> None:
        self._pulls.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever waited has seen it
