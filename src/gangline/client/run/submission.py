"""Create the objects of manifests or of a program, and follow each job to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.api.codec import Document
from gangline.api.resources import Resource
from gangline.client.manifests import WORKLOADS, in_order
from gangline.client.notices import Say, silent
from gangline.client.run.advice import advice_for
from gangline.client.run.create_or_attach import apply_object, claim_job, create_job
from gangline.client.run.follow import Follower, FollowView
from gangline.client.run.kept_run import KeptRun
from gangline.client.run.program_session import HandOver
from gangline.client.target import ClusterTarget
from gangline.errors import UnschedulableError
from gangline.workloads.job_outcome import JobOutcome
from gangline.workloads.job_start import job_ref
from gangline.workloads.kinds import kind_of
from gangline.workloads.pending import IMAGE_REFUSED, PendingReason

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]
Applied = Callable[["ObjectClient", Resource, Document], Awaitable[None]]


class Claimed(NamedTuple):
    """A job that this command follows, and whether another one had started it."""

    resource: Resource
    job: Obj
    was_there: bool = False


async def create_objects(
    client: ObjectClient,
    documents: Sequence[Document],
    target: ClusterTarget,
    hand_over: HandOver,
    next_obj: Callable[[], Obj] | None = None,
    say: Say = silent,
    applied: Applied | None = None,
) -> list[Claimed]:
    """Create every object; what runs last, and a job that is there already is followed or replaced.

    Args:
        client: of the target.
        documents: checked manifests.
        target: the cluster.
        hand_over: is called with each job that is created here.
        next_obj: returns the one document's job under another name, where Gangline chooses it.
        say: is told what becomes of objects that are there.
        applied: is called with each object that is no job, once it is applied.

    Raises:
        UserError: another job of a name runs.
        ClusterError: the server refuses an object.
    """
    from gangline.kube.discovery import resource_for

    claimed: list[Claimed] = []
    for document in in_order(documents):
        resource = await resource_for(client, document.api_version, document.kind)
        if document.kind in WORKLOADS:
            was_there = False
            if next_obj is not None:
                job = await create_job(client, resource, document.value, next_obj)
            else:
                hint = f"{document.name}{way_back(document.value, target)}"
                job, was_there = await claim_job(client, resource, document.value, logs_hint=hint, say=say)
            if not was_there:
                await hand_over(client, job)
            claimed.append(Claimed(resource, job, was_there))
        else:
            await apply_object(client, resource, document.value, say=say)
            if applied is not None:
                await applied(client, resource, document)
    return claimed


async def follow_job(
    client: ObjectClient, claimed: Claimed, target: ClusterTarget, view: FollowView, say: Say = silent
) -> JobOutcome:
    """Follow a job to its end; `view` is told what happens, its log too.

    Raises:
        UnschedulableError: an image of it will never be here.
        ClusterError: the server could not be reached for 30 s.
    """
    resource, job, was_there = claimed
    if not target.is_local:
        return await Follower(client, resource, job, view, kept=KeptRun(target.kept)).run()

    async def recover() -> None:
        await asyncio.to_thread(bring_back(target, say))

    has_history = not was_there and kind_of(job).pod_labels is not None  # of which the job itself is no part
    return await Follower(
        client,
        resource,
        job,
        view,
        recover=recover,
        on_stuck=_refuse_image,
        has_history=has_history,
        sees_ends=True,
    ).run()


def bring_back(target: ClusterTarget, say: Say) -> Callable[[], object]:
    """Return what starts the server again that was killed under this run; its pods go on meanwhile."""
    from gangline.cluster.daemon.cluster import Cluster

    return lambda: Cluster(target.paths).ensure_up(say=say)


def _refuse_image(job: Obj, pod: Obj, reason: PendingReason) -> None:
    """End the wait for an image that this machine will never have: nothing here pulls it."""
    if reason.kind in IMAGE_REFUSED:
        raise UnschedulableError(
            f"{job_ref(job)} can never start: {reason}", hint=advice_for(job, pod, reason)
        )


def way_back(job: Obj, target: ClusterTarget) -> str:
    """Return the options that lead another command to this job, with a space in front, or nothing."""
    namespace = job["metadata"].get("namespace") or "default"
    return (f" -n {namespace}" if namespace != "default" else "") + target.options
