"""The images of one pod's containers: served by a folder, pulled by the runtime, or the reason why not.

Reasons, events and pauses are the kubelet's: ``ErrImagePull`` when a pull has failed, ``ImagePullBackOff``
while the next one waits (10 s, doubling to 300 s), ``ErrImageNeverPull`` where nothing may be pulled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangline.api.core import Container
from gangline.cluster.images.image import Image
from gangline.cluster.images.local_images import base_path
from gangline.cluster.images.program_check import why_not
from gangline.cluster.images.runtime.image_store import ImageStore, RuntimeFailedError
from gangline.cluster.node.pods.restart_policy import back_off_s

if TYPE_CHECKING:
    from gangline.cluster.node.image_sources import ImageSources

PULLING = "ContainerCreating"
TOLD_S = 5.0
"""How long a failed pull is told of as such, before the pod is said to wait for the next one."""


class ImageUnavailableError(Exception):
    """There is no image to start a container from (yet); ``reason`` is the word for the pod's status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass
class _Pull:
    """The pull for the next start of one container. Moments are of the monotonic clock, in seconds."""

    task: asyncio.Task[None] | None = None
    started_s: float = 0.0
    failures: int = 0
    failed_at_s: float = 0.0
    again_at_s: float = 0.0
    error: str = ""


class PodImages:
    """See the module's text.

    Args:
        sources: of the agent.
        wake: called when a pull has ended.
        event: writes an event about the pod: type, reason, message.
    """

    def __init__(
        self, sources: ImageSources, wake: Callable[[], None], event: Callable[[str, str, str], None]
    ) -> None:
        self._sources = sources
        self._wake = wake
        self._event = event
        self._pulls: dict[str, _Pull] = {}

    async def find(self, container: Container) -> Image:
        """Return the image for one start of a container; ask again after ``wake``, or some time later.

        Raises:
            ImageUnavailableError: it is being pulled, or cannot be had.
        """
        try:
            served = await self._sources.serve(container.image)
            if isinstance(served, Image):
                return await _fit(served, container)
            return await self._from_runtime(served, container)
        except RuntimeFailedError as error:
            raise ImageUnavailableError("ImageInspectError", str(error)) from error

    def close(self) -> None:
        """Give up pulls that are under way."""
        for pull in self._pulls.values():
            if pull.task is not None:
                pull.task.cancel()

    async def _from_runtime(self, store: ImageStore, container: Container) -> Image:
        image, policy = container.image, container.image_pull_policy
        pull = self._pulls.setdefault(container.name, _Pull())
        if pull.task is not None:
            return await self._pulled(store, container, pull, pull.task)
        if policy != "Always":
            found = await store.find(image)
            if found is not None:
                self._event("Normal", "Pulled", f'Container image "{image}" already present on machine')
                return found
        if policy == "Never":
            text = f'Container image "{image}" is not present with pull policy of Never'
            raise ImageUnavailableError("ErrImageNeverPull", text)
        if time.monotonic() < pull.again_at_s:
            if time.monotonic() < pull.failed_at_s + TOLD_S:
                raise ImageUnavailableError("ErrImagePull", pull.error)
            text = f'Back-off pulling image "{image}": {pull.error}'
            raise ImageUnavailableError("ImagePullBackOff", text)
        self._event("Normal", "Pulling", f'Pulling image "{image}"')
        pull.started_s = time.monotonic()
        pull.task = asyncio.create_task(self._sources.pull(store, image))
        pull.task.add_done_callback(lambda _: self._wake())
        raise ImageUnavailableError(PULLING, "")

    async def _pulled(
        self, store: ImageStore, container: Container, pull: _Pull, task: asyncio.Task[None]
    ) -> Image:
        if not task.done():
            raise ImageUnavailableError(PULLING, "")
        pull.task = None
        image = container.image
        try:
            task.result()
            found = await store.find(image)
            if found is None:
                raise RuntimeFailedError(f"{store.name} does not have it after the pull")
        except RuntimeFailedError as error:
            pull.error = f'failed to pull image "{image}" with {store.name}: {error}'
            if container.image_pull_policy == "Always":
                pull.error += "; one that was loaded by hand needs `imagePullPolicy: IfNotPresent`"
            pull.failures += 1
            pull.failed_at_s = time.monotonic()
            pull.again_at_s = pull.failed_at_s + back_off_s(pull.failures)
            raise ImageUnavailableError("ErrImagePull", pull.error) from error
        took_s = time.monotonic() - pull.started_s
        self._event("Normal", "Pulled", f'Successfully pulled image "{image}" in {took_s:.2f} s')
        pull.failures = 0
        return found


async def _fit(image: Image, container: Container) -> Image:
    """Return the image unless what the container runs in it is known to fail in every try.

    Raises:
        ImageUnavailableError: it is.
    """
    if image.is_whole:
        return image  # with programs of its own
    words = image.argv(container.command, container.args)
    folder = container.working_dir or image.config.working_dir
    environment = {**image.env, **{one.name: one.value for one in container.env}}
    path = environment.get("PATH") or base_path(image, "")
    ours = image.env.get("GANGLINE_IMAGE", "")  # none of ours: a folder may serve an image of that name
    refusal = await asyncio.to_thread(why_not, ours, words, folder, path, environment)
    if refusal is not None:
        raise ImageUnavailableError("ErrImageNeverPull", f'image "{container.image}": {": ".join(refusal)}')
    return image
