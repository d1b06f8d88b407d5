"""Takes an installation away from a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.definitions import ANNOTATION
from gangline.api.resources import CRDS, DEPLOYMENTS, MPIJOBS, TRAINING_JOBS, Resource
from gangline.errors import ClusterError
from gangline.installation.definitions import resource_of
from gangline.installation.found import Found, find_installed
from gangline.installation.handover import hand_over
from gangline.installation.objects import Installation, definitions
from gangline.installation.replaced import Replaced, put_back, read_replaced
from gangline.kube.errors import Forbidden, NotFound

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
        replaced: what is put back.
        namespace: of the jobs that stay; all have None.
        jobs_stay: another operator may go on with them.
    """

    objects: list[Found]
    definitions: list[Found]
    jobs: list[Obj]
    kept: list[str]
    replaced: Replaced
    namespace: str | None
    jobs_stay: bool


async def plan_removal(client: ObjectClient, installation: Installation, *, keep_jobs: bool) -> Removal:
    """Return what would go, so that somebody can be asked.

    With one namespace, and with ``keep_jobs``, no definition goes, and no job with it.
    """
    found = await find_installed(client, installation)
    replaced = await read_replaced(client, installation.namespace)
    back = {crd["metadata"]["name"] for crd in replaced.definitions}
    is_partial = installation.is_namespaced or keep_jobs
    jobs_go = not (is_partial or replaced.operators or _name_of(MPIJOBS) in back)
    namespace = installation.namespace if installation.is_namespaced else None
    plan = Removal(found, [], [], [], replaced, namespace, jobs_stay=not jobs_go)
    if is_partial:
        return plan
    for crd in definitions(msgspec.structs.replace(installation, has_scheduler=True)):
        name = crd["metadata"]["name"]
        if name in back:
            continue
        try:
            live = await client.get(CRDS, name)
        except NotFound:
            continue
        there = (await client.list(resource_of(crd))).items
        is_of_jobs = resource_of(crd) in (MPIJOBS, *TRAINING_JOBS)
        # What jobs own goes with them.
        staying = there if not jobs_go else [] if is_of_jobs else [one for one in there if not _is_owned(one)]
        if ANNOTATION not in (live["metadata"].get("annotations") or {}):
            plan.kept.append(f"customresourcedefinition/{name} left as it is: it is not Gangline's")
        elif staying or (is_of_jobs and not jobs_go):
            plan.kept.append(f"customresourcedefinition/{name} left as it is: others need it")
        else:
            plan.definitions.append(Found(CRDS, live))
            plan.jobs.extend(there if is_of_jobs else [])
    return plan


def _name_of(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"


def _is_owned(obj: Obj) -> bool:
    return bool(obj["metadata"].get("ownerReferences"))


async def carry_out(client: ObjectClient, removal: Removal, say: Say) -> None:
    """Delete: services first, and wait until their pods are gone, so that none makes again what goes.

    Raises:
        ClusterError: something is still there after two minutes.
    """
    services = [one for one in removal.objects if one.resource == DEPLOYMENTS]
    rest = [one for one in removal.objects if one.resource != DEPLOYMENTS]
    await delete_all(client, services, say)
    if removal.jobs_stay:
        try:
            await hand_over(client, removal.namespace, say)
        except Forbidden as error:
            say(f"jobs are left as they are: {error.message}")
    await put_back(client, removal.replaced, say)
    for group in (removal.definitions, rest):
        await delete_all(client, group, say)
    for line in removal.kept:
        say(line)


async def delete_all(client: ObjectClient, going: Sequence[Found], say: Say) -> None:
    """Delete objects, and wait until they are gone.

    Raises:
        ClusterError: one is still there after two minutes.
    """
    for one in going:
        metadata = one.value["metadata"]
        try:
            await client.delete(one.resource, one.name, metadata.get("namespace"), propagation="Foreground")
        except NotFound:
            continue
        say(f"{one.title} deleted")
    await _until_gone(client, going)


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
