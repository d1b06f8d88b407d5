"""Create the objects of a run; decide what becomes of a job of the same name that is there already."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gangline.api.resources import PODS, Resource
from gangline.client.notices import Say, silent
from gangline.cluster.runs.record import PROGRAM_ANNOTATION
from gangline.errors import ClusterError, UserError
from gangline.workloads.job_start import job_ref
from gangline.workloads.job_state import finished
from gangline.workloads.kinds import kind_of

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

CLAIMS_MAX = 5
"""Times that a creation is tried while jobs of its name come and go."""
CREATIONS_MAX = 5
"""Times that a creation is tried when the server is killed under it."""
CREATION_ANNOTATION = "gangline.dev/creation"
REMOVAL_TIMEOUT_S = 60.0
REMOVAL_LOOK_S = 0.05


async def apply_object(client: ObjectClient, resource: Resource, obj: Obj, *, say: Say = silent) -> Obj:
    """Create or change an object that does not end, and say what was done when it was there."""
    from gangline.kube.apply import apply
    from gangline.kube.errors import Unavailable

    for left in reversed(range(CREATIONS_MAX)):
        try:
            verb, result = await apply(client, resource, obj)
            break
        except Unavailable:  # to apply it again changes nothing that was done
            if not left:
                raise
    if verb == "configured":
        say(f"{job_ref(result)} {verb}")
    return result


async def create_job(client: ObjectClient, resource: Resource, obj: Obj, next_obj: Callable[[], Obj]) -> Obj:
    """Create a job under the first name that is free, and return it.

    Args:
        client: of the API server.
        resource: kind of the job.
        obj: the job under the first name to try.
        next_obj: returns it under the next one; called in a thread.
    """
    from gangline.kube.errors import AlreadyExists

    while True:
        try:
            return await create_once(client, resource, _desired(client, obj))
        except AlreadyExists:
            obj = await asyncio.to_thread(next_obj)


async def claim_job(
    client: ObjectClient, resource: Resource, obj: Obj, *, logs_hint: str, say: Say = silent
) -> tuple[Obj, bool]:
    """Return the job to follow, and whether it ran already with this name and specification; else it is new.

    A finished one is replaced, which is said; one that is being deleted is waited for.

    Raises:
        UserError: a job of that name runs with another specification.
    """
    from gangline.kube.apply import LAST_APPLIED
    from gangline.kube.errors import AlreadyExists, NotFound

    desired = _desired(client, obj)
    name, namespace = desired["metadata"]["name"], desired["metadata"]["namespace"]
    for _ in range(CLAIMS_MAX):
        try:
            return await create_once(client, resource, desired), False
        except AlreadyExists:
            pass
        try:
            live = await client.get(resource, name, namespace)
        except NotFound:
            continue
        live.setdefault("kind", resource.kind)
        title = job_ref(live)
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
    raise ClusterError(f"cannot create {job_ref(desired)}: others create and delete it at the same time")


def _desired(client: ObjectClient, obj: Obj) -> Obj:
    from gangline.kube.apply import with_last_applied

    return with_last_applied(obj, obj["metadata"].get("namespace") or client.connection.namespace)


async def create_once(client: ObjectClient, resource: Resource, obj: Obj) -> Obj:
    """Create an object; one that the server kept and could not answer for is not created a second time.

    Raises:
        AlreadyExists: another one of that name is there.
        UserError: the cluster does not serve the kind.
        ApiError: the server refuses, or does not come back.
    """
    from gangline.kube.errors import AlreadyExists, NotFound, Unavailable

    annotations = {**(obj["metadata"].get("annotations") or {}), CREATION_ANNOTATION: os.urandom(16).hex()}
    marked = {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
    metadata = marked["metadata"]
    for _ in range(CREATIONS_MAX):
        try:
            return await client.create(resource, marked)
        except (AlreadyExists, Unavailable) as error:
            failure = error
        except NotFound as error:
            if error.details.get("name"):
                raise  # the namespace
            raise UserError(
                f"cannot create {job_ref(marked)}: the cluster does not serve {resource.api_version} "
                f"{resource.kind}",
                hint="install an operator that brings it; for Gangline's own on the one-machine cluster: "
                "gangline down, then gangline up --operator",
            ) from None
        try:
            live = await client.get(resource, metadata["name"], metadata.get("namespace"))
        except NotFound:
            if isinstance(failure, AlreadyExists):
                raise failure from None
            continue
        found = (live["metadata"].get("annotations") or {}).get(CREATION_ANNOTATION)
        if found == annotations[CREATION_ANNOTATION]:
            return live
        raise failure
    raise failure


def _annotation(obj: Obj, name: str) -> str:
    return str(obj["metadata"]["annotations"][name])


async def delete_job(client: ObjectClient, resource: Resource, job: Obj) -> None:
    """Delete a job and wait until it and its pods are gone.

    Raises:
        ClusterError: something is still there after 60 s; the message names it.
    """
    from gangline.kube.errors import Conflict, NotFound

    metadata = job["metadata"]
    with suppress(NotFound, Conflict):  # gone, or replaced by another command
        await client.delete(
            resource, metadata["name"], metadata.get("namespace"), uid=metadata.get("uid", "")
        )
    await wait_gone(client, resource, job)


async def wait_gone(client: ObjectClient, resource: Resource, job: Obj) -> None:
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
        f"{job_ref(job)} is not gone after {REMOVAL_TIMEOUT_S:.0f} s: {', '.join(left[:5])} still there",
        hint="`gangline status` says whether the node agent works",
    )


async def _remaining(client: ObjectClient, resource: Resource, job: Obj) -> list[str]:
    from gangline.kube.errors import NotFound

    metadata = job["metadata"]
    try:
        found = await client.get(resource, metadata["name"], metadata.get("namespace"))
        if found["metadata"].get("uid") != metadata.get("uid"):
            return []  # another command was first, and these pods are of the job that it created
        return [str(job_ref(job))]
    except NotFound:
        pass
    kind = kind_of(job)
    if kind.pod_labels is None:
        return []
    labels, _ = kind.pod_selector(job)
    pods = await client.list(PODS, metadata.get("namespace"), label_selector=labels)
    return [f"pod {pod['metadata']['name']}" for pod in pods.items if kind.belongs(job, pod)]
