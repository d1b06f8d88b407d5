"""Leaves jobs so that the MPI operator, or whichever comes next, goes on with them.

It gives a job a new key pair where the Secret has more than its two keys, which running pods would not know.
And it takes pods as they are: those of ours that have not begun ask for our scheduler and for these keys,
so they go, and are made again as that operator makes them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gangline.api.mpijob_validation import SSH_VOLUME
from gangline.api.pod_group import GANGLINE_SCHEDULER
from gangline.api.resources import JOBS, MPIJOBS, PODS, SECRETS
from gangline.jobs.names import PRIVATE_KEY, PUBLIC_KEY
from gangline.kube.errors import Conflict, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]
Say = Callable[[str], None]

_PAIR: Final = frozenset({PRIVATE_KEY, PUBLIC_KEY})
_SSH_SECRETS: Final = "type=kubernetes.io/ssh-auth"
_NOTHING_RUNS: Final = ("Pending", "Failed")
_ENDS: Final = ("Complete", "Failed")


class Waiting(msgspec.Struct, frozen=True):
    """What of jobs has not begun, and could not without us.

    Attributes:
        workers: pods.
        launchers: Jobs.
    """

    workers: list[Obj]
    launchers: list[Obj]


def find_waiting(pods: Sequence[Obj], jobs: Sequence[Obj]) -> Waiting:
    """Return what has to be made again for another operator.

    Args:
        pods: of any owner and in any phase.
        jobs: Jobs, of any owner.
    """
    begun = {owner["uid"] for pod in pods if _phase(pod) not in _NOTHING_RUNS and (owner := _controller(pod))}
    workers = [
        pod for pod in pods if _is_of_mpijob(pod) and _phase(pod) == "Pending" and _is_ours(pod["spec"])
    ]
    launchers = [
        job
        for job in jobs
        if _is_of_mpijob(job) and job["metadata"]["uid"] not in begun and not _has_ended(job)
        if _is_ours(job["spec"]["template"]["spec"])
    ]
    return Waiting(workers, launchers)


def _is_ours(spec: Obj) -> bool:
    """Return whether a pod asks for our scheduler or for a key that only our Secrets have."""
    items = (
        item
        for volume in spec.get("volumes") or []
        if volume["name"] == SSH_VOLUME
        for item in (volume.get("secret") or {}).get("items") or []
    )
    is_placed_by_us = spec.get("schedulerName") == GANGLINE_SCHEDULER
    return is_placed_by_us or any(item["key"] not in _PAIR for item in items)


def _phase(pod: Obj) -> str:
    return str(pod.get("status", {}).get("phase") or "Pending")


def _controller(obj: Obj) -> Obj | None:
    owners = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def _is_of_mpijob(obj: Obj) -> bool:
    owner = _controller(obj)
    return owner is not None and (owner["apiVersion"], owner["kind"]) == (MPIJOBS.api_version, MPIJOBS.kind)


def _has_ended(job: Obj) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return any(one["type"] in _ENDS and one["status"] == "True" for one in conditions)


async def hand_over(client: ObjectClient, namespace: str | None, say: Say) -> None:
    """Make the jobs of a namespace, or of all, ready for another operator; ours has to be gone."""
    secrets = (await client.list(SECRETS, namespace, field_selector=_SSH_SECRETS)).items
    for one in secrets:
        more = set(one.get("data") or {}) - _PAIR
        if _is_of_mpijob(one) and more:
            meta = one["metadata"]
            patch = {"data": dict.fromkeys(more)}
            with contextlib.suppress(NotFound):
                await client.patch(SECRETS, meta["name"], patch, meta["namespace"])
    pods, jobs = await asyncio.gather(client.list(PODS, namespace), client.list(JOBS, namespace))
    waiting = find_waiting(pods.items, jobs.items)
    for resource, found in ((PODS, waiting.workers), (JOBS, waiting.launchers)):
        for one in found:
            meta = one["metadata"]
            with contextlib.suppress(NotFound, Conflict):  # it is gone, or already another
                await client.delete(resource, meta["name"], meta["namespace"], uid=meta["uid"])
    if waiting.launchers:
        say(f"launchers that had not begun, for the next operator to make: {len(waiting.launchers)}")
