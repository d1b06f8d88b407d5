"""``pods/log``: a container's log as text, followed until the container ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from gangline import clock
from gangline.cluster.log_files import FolderWatch, LogQuery, LogReader
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.request_context import RequestContext, RequestParameters

FOLLOW_CHECK_PERIOD_S = 600.0

Write = Callable[[bytes], Awaitable[None]]


class Followed(Protocol):
    """A pod as it is now, for as long as its log is followed."""

    def current(self) -> dict[str, Any] | None:
        """Return the pod, None when it is gone."""

    async def changed(self) -> None:
        """Wait until it may have changed."""

    def close(self) -> None:
        """Follow it no more."""


class _StoredPod:
    """A pod of this server's store."""

    def __init__(self, api: ApiContext, context: RequestContext, uid: str) -> None:
        self._store, self._target, self._uid = api.store, context.target, uid
        target = context.target
        self._watcher = api.store.ring.watch(
            target.collection, target.namespace, target.name, api.store.revision
        )

    def current(self) -> dict[str, Any] | None:
        now = self._store.get(*self._target.key)
        is_gone = now is None or now.obj["metadata"]["uid"] != self._uid or self._watcher.closed
        return None if is_gone or now is None else now.obj

    async def changed(self) -> None:
        await self._watcher.next_changes(FOLLOW_CHECK_PERIOD_S)

    def close(self) -> None:
        self._store.ring.unwatch(self._watcher)


async def pod_log(api: ApiContext, context: RequestContext) -> web.StreamResponse:
    """Answer GET of ``pods/log``."""
    target = context.target
    entry = api.store.get(*target.key)
    if entry is None:
        raise status_errors.not_found(target.served, target.name)
    container = container_of(entry.obj, context.query.get("container", ""))
    uid = entry.obj["metadata"]["uid"]
    return await send_log(api.paths, context, entry.obj, container, lambda: _StoredPod(api, context, uid))


async def send_log(
    paths: ClusterPaths,
    context: RequestParameters,
    pod: dict[str, Any],
    container: str,
    follow: Callable[[], Followed],
) -> web.StreamResponse:
    """Answer with the log of a container; ``follow`` is called when it is to be followed.

    Raises:
        StatusError: 400 it has none, 422 a parameter is wrong.
    """
    path = log_file(paths, pod, container, previous=context.flag("previous"))
    reader = LogReader(path, _query(context))
    response: web.StreamResponse | None = None
    try:
        response, write, end = await _begin(context)
        if context.flag("follow") and not context.flag("previous"):
            await _follow(follow(), path.parent, _restarts(pod, container), reader, write)
        else:
            while text := reader.read():
                await write(text)
        await end()
    except ConnectionError:
        if response is None:
            raise
    finally:
        reader.close()
    return response


async def _begin(
    context: RequestParameters,
) -> tuple[web.StreamResponse, Write, Callable[[], Awaitable[None]]]:
    """Begin the answer, over a WebSocket where one is asked for; return it, what writes and what ends it."""
    if "Upgrade" in context.request.headers:
        from gangline.cluster.server.streams.channels import BINARY, CLOSE_TIMEOUT_S, open_web_socket

        web_socket, upgraded = await open_web_socket(context, (BINARY,))
        return upgraded, web_socket.send, lambda: web_socket.close(CLOSE_TIMEOUT_S)
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    await response.prepare(context.request)
    return response, response.write, response.write_eof


async def _follow(followed: Followed, folder: Path, restarts: int, reader: LogReader, write: Write) -> None:
    """Send the log until this run of the container, which names the folder, has ended and all is sent."""
    watch = FolderWatch(folder)
    waits: set[asyncio.Task[Any]] = set()
    try:
        while True:
            now = followed.current()
            ended = now is None or has_ended(now, folder.name, restarts)
            # Looked at before the end of the file: what was written before the end is read after it.
            while text := reader.read():
                await write(text)
            if ended or reader.is_full:
                return
            if not waits:
                waits = {asyncio.create_task(watch.changed()), asyncio.create_task(_changes(followed))}
            done, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                waits.add(asyncio.create_task(_changes(followed) if task.result() else watch.changed()))
    finally:
        for task in waits:
            task.cancel()
        watch.close()
        followed.close()


async def _changes(followed: Followed) -> bool:
    await followed.changed()
    return True


def _query(context: RequestParameters) -> LogQuery:
    limit = context.number("limitBytes")
    if limit is not None and limit < 1:
        raise status_errors.unprocessable("limitBytes: Invalid value: must be greater than 0")
    since = context.query.get("sinceTime", "")
    seconds = context.number("sinceSeconds")
    if seconds is not None:
        if since:
            raise status_errors.unprocessable("at most one of `sinceTime` or `sinceSeconds` may be specified")
        if seconds < 1:
            raise status_errors.unprocessable(
                f"sinceSeconds: Invalid value: {seconds}: must be greater than 0"
            )
        oldest = min(float(seconds), clock.now().timestamp())  # nothing is older than the epoch
        since = clock.format_micro_time(clock.now() - timedelta(seconds=oldest))
    elif since:
        try:
            since = clock.format_micro_time(clock.parse_time(since))
        except ValueError as error:
            raise status_errors.bad_request(f"sinceTime: {error}") from None
    stream = context.query.get("stream", "")
    if stream not in ("", "All", "Stdout", "Stderr"):
        raise status_errors.unprocessable(f'stream: Unsupported value: "{stream}"')
    return LogQuery(
        timestamps=context.flag("timestamps"),
        since=since,
        tail_lines=context.number("tailLines"),
        stream="" if stream == "All" else stream.lower(),
        limit_bytes=limit,
    )


def container_of(pod: dict[str, Any], asked: str) -> str:
    """Return the container whose log is meant.

    Raises:
        StatusError: 400, there are several and none was named, or there is none of that name.
    """
    name = pod["metadata"]["name"]
    spec = pod.get("spec") or {}
    mains = [c["name"] for c in spec.get("containers") or []]
    inits = [c["name"] for c in spec.get("initContainers") or []]
    if asked:
        added = [c["name"] for c in spec.get("ephemeralContainers") or []]
        if asked in (*mains, *inits, *added):
            return asked
        raise status_errors.bad_request(f"container {asked} is not valid for pod {name}")
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if len(mains) == 1:
        return str(mains[0])
    if default in mains:
        return str(default)
    choices = f"[{' '.join(mains)}]"
    if inits:
        choices += f" or one of the init containers: [{' '.join(inits)}]"
    raise status_errors.bad_request(
        f"a container name must be specified for pod {name}, choose one of: {choices}"
    )


def _status_of(pod: dict[str, Any], container: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    found: dict[str, Any]
    for key in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for found in status.get(key) or []:
            if found.get("name") == container:
                return found
    return {}


def _restarts(pod: dict[str, Any], container: str) -> int:
    return int(_status_of(pod, container).get("restartCount") or 0)


def has_ended(pod: dict[str, Any], container: str, restarts: int) -> bool:
    """Whether that run of the container is over."""
    status = _status_of(pod, container)
    if int(status.get("restartCount") or 0) > restarts or "terminated" in (status.get("state") or {}):
        return True
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def log_file(paths: ClusterPaths, pod: dict[str, Any], container: str, *, previous: bool) -> Path:
    """Return the file of a container's log.

    Raises:
        StatusError: 400, the container has not started, or never ran before.
    """
    meta = pod["metadata"]
    status = _status_of(pod, container)
    restarts = int(status.get("restartCount") or 0)
    folder = paths.pod_logs(meta["namespace"], meta["name"], meta["uid"]) / container
    state = status.get("state") or {}
    if previous:
        # A container that waits for its next start still has the count of the run that ended.
        run = (
            restarts
            if "waiting" in state and "terminated" in (status.get("lastState") or {})
            else restarts - 1
        )
        if run < 0 or not (folder / f"{run}.log").exists():
            raise status_errors.bad_request(
                f'previous terminated container "{container}" in pod "{meta["name"]}" not found'
            )
        return folder / f"{run}.log"
    path = folder / f"{restarts}.log"
    if "running" in state or "terminated" in state or path.exists():
        return path
    if restarts > 0 and (folder / f"{restarts - 1}.log").exists():
        return folder / f"{restarts - 1}.log"
    reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
    raise status_errors.bad_request(
        f'container "{container}" in pod "{meta["name"]}" is waiting to start: {reason}'
    )
