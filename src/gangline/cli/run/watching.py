"""One collection, watched while a command waits: a list, then changes, through every interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gangline.api.resources import Resource
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from gangline.kube.client import Client

Obj = dict[str, Any]
Recover = Callable[[], Awaitable[None]]

RETRY_DELAY_S = 0.1
UNREACHABLE_MAX_S = 30.0


async def watch_objects(
    client: Client,
    resource: Resource,
    namespace: str | None,
    on_objects: Callable[[dict[str, Obj]], None],
    *,
    label_selector: str = "",
    field_selector: str = "",
    recover: Recover | None = None,
    since: str = "",
) -> None:
    """Keep a dictionary of objects by uid up to date and hand it over after every change; endless.

    Args:
        client: of the API server.
        resource: the kind.
        namespace: where.
        on_objects: called in the event loop; it may keep the dictionary and must not change it.
        label_selector: in the syntax of the API.
        field_selector: in the syntax of the API.
        recover: called when the server cannot be reached, before the next try.
        since: version of the cluster at which there was none: then all that happened since is handed over,
            and not only what is left of it.

    Raises:
        ApiError: the server refused, or could not be reached for 30 s.
    """
    import msgspec

    from gangline.kube.errors import Gone, ServerError, Unavailable

    loop = asyncio.get_running_loop()
    reached = loop.time()
    selectors: dict[str, Any] = {"label_selector": label_selector, "field_selector": field_selector}
    while True:
        try:
            if since:
                objects: dict[str, Obj] = {}
                version, since = since, ""
            else:
                found = await client.list(resource, namespace, **selectors)
                reached = loop.time()
                objects = {item["metadata"]["uid"]: item for item in found.items}
                on_objects(objects)
                version = found.resource_version
            while True:
                events = client.watch(resource, namespace, resource_version=version, **selectors)
                async for event in events:
                    reached = loop.time()
                    obj = msgspec.json.decode(event.object)
                    version = obj["metadata"].get("resourceVersion") or version
                    if _take(objects, event.type, obj):
                        on_objects(objects)
                reached = loop.time()
        except Gone:
            continue
        except (Unavailable, ServerError):
            if loop.time() - reached > UNREACHABLE_MAX_S:
                raise
            if recover is not None:
                with suppress(ClusterError):  # it may be killed once more while it starts
                    await recover()
            await asyncio.sleep(RETRY_DELAY_S)


def _take(objects: dict[str, Obj], type_: str, obj: Obj) -> bool:
    """Take one change in; ``False`` for a bookmark."""
    if type_ in ("ADDED", "MODIFIED"):
        objects[obj["metadata"]["uid"]] = obj
        return True
    if type_ == "DELETED":
        objects.pop(obj["metadata"]["uid"], None)
        return True
    return False
