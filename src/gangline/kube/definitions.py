"""Writes our custom resource definitions where no others stand, and notices when others take their place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from gangline.api.definitions import DefinitionOrigin, judge
from gangline.api.resources import CRDS, Resource
from gangline.kube.apply import LAST_APPLIED
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, KubeconfigError, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]
Verb = Literal["created", "configured", "replaced", "unchanged", "left"]

CONFLICTS_MAX = 10
CONFLICT_DELAY_S = 0.1
"""A definition's status takes kube-apiserver two or three writes, milliseconds apart."""

SERVED_AFTER_S = 30.0
"""Time for a server to serve a definition that it accepted."""

FIRST_RETRY_S = 1.0
CHECK_EVERY_S = 30.0
"""How often a service looks whose the definitions are that it works by."""


async def ensure(
    client: ObjectClient, crd: Obj, *, replace: bool = False
) -> tuple[Verb, DefinitionOrigin | None]:
    """Have the cluster serve a definition, unless one of others stands there.

    Args:
        client: of the cluster.
        crd: ours.
        replace: write it over one of others too.

    Returns:
        What was done, and with ``left`` and ``replaced`` what stood there.

    Raises:
        ApiError: the server refused.
    """
    for _ in range(CONFLICTS_MAX):
        try:
            return await _ensure_once(client, crd, replace=replace)
        except Conflict:  # a server writes the status of a definition soon after it was made or changed
            await asyncio.sleep(CONFLICT_DELAY_S)
    return await _ensure_once(client, crd, replace=replace)


async def create_first(client: ObjectClient, resource: Resource, manifest: Obj) -> None:
    """Create an object of a kind whose definition was written just now, unless it is there.

    A definition is served a moment after it was accepted (kube-apiserver: some 100 ms); until then the server
    knows no such path.

    Raises:
        ApiError: the server refused, or serves no such kind after :data:`SERVED_AFTER_S`.
    """
    deadline = time.monotonic() + SERVED_AFTER_S
    while True:
        try:
            await client.create(resource, manifest)
            return
        except AlreadyExists:
            return
        except NotFound:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(CONFLICT_DELAY_S)


async def _ensure_once(
    client: ObjectClient, crd: Obj, *, replace: bool
) -> tuple[Verb, DefinitionOrigin | None]:
    name = crd["metadata"]["name"]
    try:
        live = await client.get(CRDS, name)
    except NotFound:
        try:
            await client.create(CRDS, crd)
            return "created", None
        except AlreadyExists:
            live = await client.get(CRDS, name)
    verdict = judge(crd, live)
    if verdict.state == "ours":
        return "unchanged", None
    if not verdict.is_safe and not replace:
        return "left", verdict
    metadata = live["metadata"]
    notes = {**(metadata.get("annotations") or {}), **(crd["metadata"].get("annotations") or {})}
    notes.pop(LAST_APPLIED, None)  # of what stood there
    await client.update(CRDS, {**live, "metadata": {**metadata, "annotations": notes}, "spec": crd["spec"]})
    return ("configured", None) if verdict.is_safe else ("replaced", verdict)


async def find_strangers(client: ObjectClient, ours: Iterable[Obj]) -> list[DefinitionOrigin]:
    """Return the verdicts about definitions that others wrote or changed; absent ones are no strangers.

    Nor are those that the user may not read.

    Raises:
        ApiError: they cannot be read for another reason.
    """
    verdicts = []
    for crd in ours:
        try:
            verdict = judge(crd, await client.get(CRDS, crd["metadata"]["name"]))
        except (NotFound, Forbidden):
            continue
        if not verdict.is_safe:
            verdicts.append(verdict)
    return verdicts


async def watch_definitions(
    client: ObjectClient, ours: Iterable[Obj], on_change: Callable[[list[DefinitionOrigin]], None]
) -> None:
    """Tell what :func:`find_strangers` finds, at first and whenever it changes, until cancelled.

    What cannot be read is looked at again later, at the start soon: some wait for the first answer.
    """
    definitions = list(ours)
    before: list[DefinitionOrigin] | None = None
    while True:
        try:
            found = await find_strangers(client, definitions)
        except (ApiError, KubeconfigError):
            await asyncio.sleep(FIRST_RETRY_S if before is None else CHECK_EVERY_S)
            continue
        if found != before:
            on_change(found)
        before = found
        await asyncio.sleep(CHECK_EVERY_S)
