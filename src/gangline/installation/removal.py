"""Takes an installation away from a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.definitions import ANNOTATION
from gangline.api.resources import CRDS, DEPLOYMENTS, MPIJOBS
from gangline.errors import ClusterError
from gangline.installation.definitions import resource_of
from gangline.installation.found import Found, find_installed
from gangline.installation.objects import Installation, definitions
from gangline.kube.errors import NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]
Say = Callable[[str], None]

GONE_WITHIN_S = 120.0
"""A Deployment and a namespace go with their pods, which have 30 s to end."""

POLL_S = 0.2


class Removal(msgspec.Struct, frozen=True):
    """What an uninstallation takes away.

    Attributes:
        objects: in the order of deletion.
        definitions: ours, of which objects go too.
        jobs: that go with their definition.
        kept: definitions that stay, with the reason.
    """

    objects: list[Found]
    definitions: list[Found]
    jobs: list[Obj]
    kept: list[str]


async def plan_removal(client: ObjectClient, installation: Installation, *, keep_jobs: bool) -> Removal:
    """Return what would go, so that somebody can be asked.

    With one namespace, and with ``keep_jobs``, no definition goes, and no job with it.
    """
    found = await find_installed(client, installation)
    going: list[Found] = []
    kept: list[str] = []
    jobs: list[Obj] = []
    if installation.is_namespaced or keep_jobs:
        return Removal(found, going, jobs, kept)
    for crd in definitions(msgspec.structs.replace(installation, has_scheduler=True)):
        name = crd["metadata"]["name"]
        try:
            live = await client.get(CRDS, name)
        except NotFound:
            continue
        if ANNOTATION not in (live["metadata"].get("annotations") or {}):
            kept.append(f"customresourcedefinition/{name} left as it is: it is not Gangline's")
            continue
        resource = resource_of(crd)
        there = (await client.list(resource)).items
        if resource == MPIJOBS:
            jobs = there
        elif others := [one for one in there if not one["metadata"].get("ownerReferences")]:
            kept.append(f"customresourcedefinition/{name} left as it is: {len(others)} objects need it")
            continue
        going.append(Found(CRDS, live))
    return Removal(found, going, jobs, kept)


async def carry_out(client: ObjectClient, removal: Removal, say: Say) -> None:
    """Delete: services first, and wait until their pods are gone, so that none makes again what goes.

    Raises:
        ClusterError: something is still there after two minutes.
    """
    services = [one for one in removal.objects if one.resource == DEPLOYMENTS]
    rest = [one for one in removal.objects if one.resource != DEPLOYMENTS]
    for group in (services, removal.definitions, rest):
        await _delete(client, group, say)
        await _until_gone(client, group)
    for line in removal.kept:
        say(line)


async def _delete(client: ObjectClient, found: Iterable[Found], say: Say) -> None:
    for one in found:
        metadata = one.value["metadata"]
        try:
            await client.delete(one.resource, one.name, metadata.get("namespace"), propagation="Foreground")
        except NotFound:
            continue
        say(f"{one.title} deleted")


async def _until_gone(client: ObjectClient, found: Sequence[Found]) -> None:
    left = ""
    try:
        async with asyncio.timeout(GONE_WITHIN_S):
            for one in found:
                left = one.title
                while await _is_there(client, one):
                    await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise ClusterError(
            f"{left} is still there {GONE_WITHIN_S:g} s after it was deleted",
            hint="`kubectl get -o yaml` shows what its finalizers wait for; the same command goes on",
        ) from None


async def _is_there(client: ObjectClient, one: Found) -> bool:
    metadata = one.value["metadata"]
    try:
        live = await client.get(one.resource, one.name, metadata.get("namespace"))
    except NotFound:
        return False
    return bool(live["metadata"]["uid"] == metadata["uid"])
