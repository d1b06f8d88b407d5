"""Create the objects of a run; decide what becomes of a job of the same name that is there already."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gangline.api.resources import PODS, Resource
from gangline.cli.output import say
from gangline.cli.run.creation import CREATIONS_MAX, is_same_creation, with_creation_mark
from gangline.cli.run.view import job_title
from gangline.cluster.runs.record import PROGRAM_ANNOTATION
from gangline.errors import ClusterError, UserError
from gangline.workloads.job_state import finished
from gangline.workloads.kinds import kind_of

if TYPE_CHECKING:
    from gangline.kube.client import Client

Obj = dict[str, Any]

REMOVAL_TIMEOUT_S = 60.0
REMOVAL_LOOK_S = 0.05


async def apply_object(client: Client, resource: Resource, obj: Obj) -> Obj:
    """Create or change an object that does not end, and say what was done when it was there."""
    from gangline.kube.apply import apply

    verb, result = await apply(client, resource, obj)
    if verb == "configured":
        say(f"{job_title(result)} {verb}")
    return result


async def claim_job(client: Client, resource: Resource, obj: Obj, *, logs_hint: str) -> tuple[Obj, bool]:
    """Return the job to follow, and whether it ran already with this name and specification; else it is new.

    A finished one is replaced, which is said; one that is being deleted is waited for.

    Raises:
        UserError: a job of that name runs with another specification.
    """
    from gangline.kube.apply import LAST_APPLIED, with_last_applied
    from gangline.kube.errors import AlreadyExists, NotFound

    desired = with_last_applied(obj, obj["metadata"].get("namespace") or client.connection.namespace)
    name, namespace = desired["metadata"]["name"], desired["metadata"]["namespace"]
    for _ in range(3):  # a job of that name may come or go between the look and the creation
        try:
            live = await client.get(resource, name, namespace)
        except NotFound:
            try:
                return await create_once(client, resource, desired), False
            except AlreadyExists:
                continue
        live.setdefault("kind", resource.kind)
        title = job_title(live)
        if live["metadata"].get("deletionTimestamp"):
            say(f"{title} is being deleted; waiting for its end")
            await wait_gone(client, resource, live)
        elif over := finished(live):
            say(f"{title} is there and {over.lower()}; replaced (`gangline runs` keeps what was)")
            await delete_job(client, resource, live)
        elif PROGRAM_ANNOTATION in desired["metadata"]["annotations"]:
            raise UserError(
                f"cannot run {title}: a run of that name goes on",
                hint=f"give this one another name, or none (`--name {name}-2`), follow the other with "
                f"`gangline logs -f {logs_hint}`, or end it with `gangline delete {logs_hint}`",
            )
        elif (live["metadata"].get("annotations") or {}).get(LAST_APPLIED) == _annotation(
            desired, LAST_APPLIED
        ):
            say(f"{title} is running already with the same specification; following it")
            return live, True
        else:
            raise UserError(
                f"cannot run {title}: a job of that name is running with another specification",
                hint=f"give this one another name, follow the other with "
                f"`gangline logs -f {logs_hint}`, or end it with `gangline delete {logs_hint}`",
            )
    raise ClusterError(f"cannot create {job_title(desired)}: others create and delete it at the same time")


async def create_once(client: Client, resource: Resource, obj: Obj) -> Obj:
    """Create an object; one that the server kept and could not answer for is not created a second time.

    Raises:
        AlreadyExists: another one of that name is there.
        ApiError: the server refuses, or does not come back.
    """
    from gangline.kube.errors import AlreadyExists, NotFound, Unavailable

    marked = with_creation_mark(obj)
    metadata = marked["metadata"]
    for _ in range(CREATIONS_MAX):
        try:
            return await client.create(resource, marked)
        except (AlreadyExists, Unavailable) as error:
            failure = error
        try:
            live = await client.get(resource, metadata["name"], metadata.get("namespace"))
        except NotFound:
            if isinstance(failure, AlreadyExists):
                raise failure from None
            continue
        if is_same_creation(live, marked):
            return live
        raise failure
    raise failure


def _annotation(obj: Obj, name: str) -> str:
    return str(obj["metadata"]["annotations"][name])


async def delete_job(client: Client, resource: Resource, job: Obj) -> None:
    """Delete a job and wait until it and its pods are gone.

    Raises:
        ClusterError: something is still there after 60 s; the message names it.
    """
    from gangline.kube.errors import NotFound

    metadata = job["metadata"]
    try:
        await client.delete(
            resource, metadata["name"], metadata.get("namespace"), uid=metadata.get("uid", "")
        )
    except NotFound:
        pass
    await wait_gone(client, resource, job)


async def wait_gone(client: Client, resource: Resource, job: Obj) -> None:
    """Wait until a job and its pods are gone, at most 60 s."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + REMOVAL_TIMEOUT_S
    left: list[str] = []
    while loop.time() < deadline:
        left = await _remaining(client, resource, job)
        if not left:
            return
        await asyncio.sleep(REMOVAL_LOOK_S)
    raise ClusterError(
        f"{job_title(job)} is not gone after {REMOVAL_TIMEOUT_S:.0f} s: {', '.join(left[:5])} still there",
        hint="`gangline status` says whether the node agent works",
    )


async def _remaining(client: Client, resource: Resource, job: Obj) -> list[str]:
    from gangline.kube.errors import NotFound

    metadata = job["metadata"]
    try:
        found = await client.get(resource, metadata["name"], metadata.get("namespace"))
        if found["metadata"].get("uid") == metadata.get("uid"):
            return [job_title(job)]
    except NotFound:
        pass
    kind = kind_of(job)
    if kind.pod_labels is None:
        return []
    labels, _ = kind.pod_selector(job)
    pods = await client.list(PODS, metadata.get("namespace"), label_selector=labels)
    return [f"pod {pod['metadata']['name']}" for pod in pods.items if kind.belongs(job, pod)]
