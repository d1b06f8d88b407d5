"""Find jobs by name: an MPIJob first, then a Job, then a Pod; and the pods of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gangline.api.resources import EVENTS, PODS, Resource
from gangline.cli.held_up import is_silent
from gangline.errors import ClusterError, UserError
from gangline.workloads.kinds import KINDS, kind_called, kind_of

if TYPE_CHECKING:
    from gangline.kube.client import Client

Obj = dict[str, Any]


async def find_job(client: Client, name: str, namespace: str) -> tuple[Resource, Obj]:
    """Return the job of that name; ``KIND/NAME`` asks for one kind only.

    Raises:
        UserError: there is none; the hint names the nearest.
    """
    from gangline.kube.errors import NotFound

    kinds = [kind for kind in KINDS if kind.is_job]
    if "/" in name:
        word, _, name = name.partition("/")
        asked = kind_called(word)
        if asked is None:
            known = ", ".join(f"`{kind.words[0]}`" for kind in KINDS)
            raise UserError(f"no kind of jobs is called `{word}`; there are {known}")
        kinds = [asked]
    for resource in (kind.resource for kind in kinds):
        try:
            found = await client.get(resource, name, namespace)
        except NotFound:
            continue
        found.setdefault("kind", resource.kind)
        return resource, found
    raise UserError(f"no job `{name}` in namespace `{namespace}`", hint=await _hint(client, name, namespace))


async def _hint(client: Client, name: str, namespace: str) -> str:
    from difflib import get_close_matches

    jobs = await list_jobs(client, namespace)
    if of_name := [job for job in jobs if job["metadata"]["name"] == name]:  # of another kind than asked for
        return f"did you mean `{of_name[0]['kind'].lower()}/{name}`?"
    near = get_close_matches(name, [job["metadata"]["name"] for job in jobs], n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return "`gangline list` shows the jobs of a namespace, `gangline list -A` all of them"


async def list_jobs(client: Client, namespace: str | None) -> list[Obj]:
    """Return every job that no other object controls, oldest first; a Pod alone is none."""
    kinds = [kind.resource for kind in KINDS if kind.is_job and kind.pod_labels]
    found: list[Obj] = []
    for resource, items in zip(
        kinds, await asyncio.gather(*(_list(client, kind, namespace) for kind in kinds)), strict=True
    ):
        for item in items:
            item.setdefault("kind", resource.kind)
            found += [] if is_controlled(item) else [item]
    return sorted(
        found, key=lambda job: (job["metadata"].get("creationTimestamp") or "", job["metadata"]["name"])
    )


async def _list(client: Client, resource: Resource, namespace: str | None) -> list[Obj]:
    from gangline.kube.errors import NotFound

    try:
        return (await client.list(resource, namespace)).items
    except NotFound:  # the cluster does not know the kind
        return []


def is_controlled(obj: Obj) -> bool:
    """Return whether another object controls this one."""
    return any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or [])


async def pods_of(client: Client, job: Obj) -> list[Obj]:
    """Return the pods of a job."""
    labels, fields = kind_of(job).pod_selector(job)
    namespace = job["metadata"].get("namespace")
    return (await client.list(PODS, namespace, label_selector=labels, field_selector=fields)).items


async def warnings_about(client: Client, namespace: str | None, pods: Iterable[Obj]) -> list[Obj]:
    """Return the warnings about pods, newest first, asked for only when a pod waits and does not say why."""
    if not any(is_silent(pod) for pod in pods):
        return []
    selector = "type=Warning,involvedObject.kind=Pod"
    try:
        found = (await client.list(EVENTS, namespace, field_selector=selector)).items
    except ClusterError:  # not everybody may read events
        return []
    return sorted(found, key=lambda event: event.get("lastTimestamp") or "", reverse=True)
