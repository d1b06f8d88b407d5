"""Find jobs by name: an MPIJob first, then a Job, then a Pod, then a past run; and the pods of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline.api.resources import EVENTS, PODS, Resource
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import ClusterError, UserError
from gangline.workloads.job_state import is_controlled
from gangline.workloads.kinds import KINDS, kind_called, kind_of
from gangline.workloads.pending import is_silent

if TYPE_CHECKING:
    from gangline.cluster.runs.reading import PastRun
    from gangline.kube.verbs import ObjectClient, ObjectReader

Obj = dict[str, Any]


class NoSuchJobError(UserError):
    """There is no job of that name."""


async def find_job(client: ObjectClient, name: str, namespace: str) -> tuple[Resource, Obj]:
    """Return the job of that name; ``KIND/NAME`` asks for one kind only.

    Raises:
        NoSuchJobError: there is none; the hint names the nearest.
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
    hint = await _hint(client, name, namespace)
    raise NoSuchJobError(f"no job `{name}` in namespace `{namespace}`", hint=hint)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job and where its pods and logs are read.

    Attributes:
        job: in wire form, as last seen.
        reader: of the cluster, or of what was kept.
        namespace: of the job.
        client: of the cluster; None for a past run.
        past: the run, if it is a past one.
    """

    job: Obj
    reader: ObjectReader
    namespace: str
    client: ObjectClient | None = None
    past: PastRun | None = None


@asynccontextmanager
async def open_job(
    target: ClusterTarget, name: str, *, any_namespace: bool = False
) -> AsyncIterator[FoundJob]:
    """Find a job: one that is there, else the newest run of that name or id that is kept on this machine.

    Raises:
        NoSuchJobError: there is neither.
        ClusterError: the cluster cannot be reached, and no run of that name is kept.
    """
    wanted = None if any_namespace else target.namespace or "default"
    if not target.is_up():
        past = find_past(target, name, wanted)
        if past is None:
            target.check_up(name)
        else:
            yield past
            return
    async with open_client(target) as client:
        namespace = client.connection.namespace
        if any_namespace:
            namespace = await _namespace_of(client, name)
        try:
            _, job = await find_job(client, name, namespace)
            found = FoundJob(job, client, namespace, client=client)
        except NoSuchJobError:
            past = find_past(target, name, wanted and namespace)
            if past is None:
                raise
            found = past
        yield found


def find_past(target: ClusterTarget, name: str, namespace: str | None) -> FoundJob | None:
    """Return a run of the history that is kept of a cluster; None where there is none of that name or id."""
    from gangline.cluster.runs.reading import find_past as find

    past = find(target.kept, name, namespace)
    if past is None:
        return None
    job = past.record.job
    return FoundJob(job, past, job["metadata"].get("namespace", ""), past=past)


async def _namespace_of(client: ObjectClient, name: str) -> str:
    bare = name.rpartition("/")[2]
    found = sorted(
        {
            job["metadata"]["namespace"]
            for job in await list_jobs(client, None)
            if job["metadata"]["name"] == bare
        }
    )
    if len(found) > 1:
        raise UserError(f"job `{bare}` is in several namespaces: {', '.join(found)}", hint="name one with -n")
    return found[0] if found else client.connection.namespace


async def _hint(client: ObjectClient, name: str, namespace: str) -> str:
    from difflib import get_close_matches

    jobs = await list_jobs(client, namespace)
    if of_name := [job for job in jobs if job["metadata"]["name"] == name]:  # of another kind than asked for
        return f"did you mean `{of_name[0]['kind'].lower()}/{name}`?"
    near = get_close_matches(name, [job["metadata"]["name"] for job in jobs], n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return (
        "`gangline list` shows the jobs of a namespace, `-A` of all; `gangline runs` shows those of the past"
    )


async def list_jobs(client: ObjectClient, namespace: str | None) -> list[Obj]:
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


async def _list(client: ObjectClient, resource: Resource, namespace: str | None) -> list[Obj]:
    from gangline.kube.errors import NotFound

    try:
        return (await client.list(resource, namespace)).items
    except NotFound:  # the cluster does not know the kind
        return []


async def pods_of(client: ObjectReader, job: Obj) -> list[Obj]:
    """Return the pods of a job."""
    labels, fields = kind_of(job).pod_selector(job)
    namespace = job["metadata"].get("namespace")
    return (await client.list(PODS, namespace, label_selector=labels, field_selector=fields)).items


async def warnings_about(client: ObjectReader, namespace: str | None, pods: Iterable[Obj]) -> list[Obj]:
    """Return the warnings about pods, newest first, asked for only when a pod waits and does not say why."""
    if not any(is_silent(pod) for pod in pods):
        return []
    selector = "type=Warning,involvedObject.kind=Pod"
    try:
        found = (await client.list(EVENTS, namespace, field_selector=selector)).items
    except ClusterError:  # not everybody may read events
        return []
    return sorted(found, key=lambda event: event.get("lastTimestamp") or "", reverse=True)
