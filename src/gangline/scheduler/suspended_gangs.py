"""Which gangs can be suspended, which are, and what of a pass's decisions is about those. No input or output.

A suspended gang has no pods. It is remembered as it was and takes part in each pass under a key of its own;
when the pass finds a place, that room is held for it, its job is resumed, and its new pods take it. What was
suspended by a scheduler that has ended is resumed at once, and waits with its pods like any other gang.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.api.resources import Resource
from gangline.placement import AttainedService, Decisions, Gang, Group, PodView, Suspension
from gangline.scheduler.state import SchedulerState
from gangline.workloads.gang_names import gang_of
from gangline.workloads.suspension import (
    CHECKPOINT_ANNOTATION,
    SuspendableJob,
    forget_patch,
    resume_patch,
    suspend_patch,
)

OWNERS_MAX = 4096
"""Controllers of gangs that are remembered although they are no jobs that can be suspended."""


@dataclass(frozen=True, slots=True)
class JobWrite:
    """One patch of a job.

    Attributes:
        resource: its kind.
        job: as it was seen last.
        patch: a merge patch.
        reason, message: of the event; empty for none.
    """

    resource: Resource
    job: SuspendableJob
    patch: dict[str, Any]
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class _Suspended:
    """A gang that is suspended, or about to be.

    Attributes:
        gang: as it waits meanwhile.
        key: of the gang that had pods, and will have some again.
        service: what it has had.
        is_seen: its job was seen suspended.
        is_going_on: it is being resumed.
    """

    gang: Gang
    key: str
    service: AttainedService
    is_seen: bool = False
    is_going_on: bool = False


class SuspendedGangs:
    """What is known of jobs that can be suspended.

    Args:
        state: of the scheduler; its allocations are told what gangs have had, and hold room for them.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._jobs: dict[str, tuple[Resource, SuspendableJob]] = {}
        self._gangs: dict[str, str] = {}
        self._saving: set[str] = set()
        self._services: dict[str, AttainedService] = {}
        self._suspended: dict[str, _Suspended] = {}
        self._held: dict[str, list[str]] = {}

    def take_job(self, resource: Resource, new: SuspendableJob | None, uid: str) -> list[JobWrite]:
        """Take a job as it is now; return what is to be written because of that."""
        if new is None or not new.is_free:
            self._jobs.pop(uid, None)
            self._services.pop(uid, None)
            self._forget(uid)
            return []
        self._jobs[uid] = (resource, new)
        self._note_service(uid)
        known = self._suspended.get(uid)
        is_ours = new.is_suspended_by_us
        if known is not None and new.is_suspended:
            known.is_seen = True
            if not is_ours:  # somebody else has suspended it since: it is theirs
                self._forget(uid)
        elif known is not None and known.is_seen:
            self._forget(uid)
        elif known is None and is_ours:  # by a scheduler that has ended
            message = "the scheduler that has suspended it has ended"
            return [JobWrite(resource, new, resume_patch(resource, uid), "Resumed", message)]
        if known is None and new.is_marked and not new.is_suspended:
            return [JobWrite(resource, new, forget_patch(uid))]
        return []

    def take_pod(self, pod: Pod) -> None:
        """Take a pod as it is now."""
        controller, gang = pod.metadata.controller, gang_of(pod)
        if controller is None or not gang:
            return
        if len(self._gangs) > OWNERS_MAX + 2 * len(self._jobs):
            self._gangs = {uid: known for uid, known in self._gangs.items() if uid in self._jobs}
            self._saving &= self._jobs.keys()
        self._gangs[controller.uid] = gang
        if CHECKPOINT_ANNOTATION in pod.metadata.annotations and controller.uid not in self._saving:
            self._saving.add(controller.uid)
            self._note_service(controller.uid)

    def begin(self, gangs: Iterable[Gang]) -> list[Gang]:
        """Tell the allocations what is known before a pass; return the suspended gangs that take part in it.

        Args:
            gangs: that wait with their pods; where one is complete for which room is held, it may take it.

        Cost: one step for each job that can be suspended, or was.
        """
        allocations = self._state.allocations
        for gang in gangs:
            if gang.key in self._held and gang.needed <= len(gang.pods):
                self.release(gang.key)
        services = {
            self._gangs[uid]: service for uid, service in self._services.items() if uid in self._gangs
        }
        taking_part = []
        for known in self._suspended.values():
            if known.key in allocations.by_gang or not known.is_seen or known.is_going_on:
                continue  # its pods are still there
            allocations.leaving.discard(known.key)
            services[known.gang.key] = known.service
            taking_part.append(known.gang)
        allocations.services = services
        return taking_part

    def carried_out(self, decisions: Decisions, now: str) -> tuple[Decisions, list[JobWrite]]:
        """Return the decisions about gangs with pods, and the writes that suspend and resume jobs.

        Args:
            decisions: of a pass.
            now: its time, RFC 3339.
        """
        writes = [self._suspend(one, now) for one in decisions.suspensions]
        jobs = {pod.uid: uid for uid, known in self._suspended.items() for pod in known.gang.pods}
        if not jobs:
            return decisions, writes
        going_on: dict[str, list[str]] = {}
        for binding in decisions.bindings:
            if binding.uid in jobs:
                going_on.setdefault(jobs[binding.uid], []).append(binding.uid)
        for uid, pods in going_on.items():
            known = self._suspended[uid]
            known.is_going_on = True
            self._held[known.key] = pods
            resource, job = self._jobs[uid]
            message = "there is room for it; it goes on from its checkpoint"
            writes.append(JobWrite(resource, job, resume_patch(resource, uid), "Resumed", message))
        keys = {known.gang.key for known in self._suspended.values()}
        left = msgspec.structs.replace(
            decisions,
            bindings=tuple(one for one in decisions.bindings if one.uid not in jobs),
            unschedulable=tuple(one for one in decisions.unschedulable if one.uid not in jobs),
            waits=tuple(one for one in decisions.waits if one.gang not in keys),
        )
        return left, writes

    def look_again(self, uid: str) -> list[JobWrite]:
        """Return what is to be written now because of a job as it was seen last."""
        return self.take_job(*self._jobs[uid], uid) if uid in self._jobs else []

    def fail(self, uid: str) -> None:
        """Take back that a job is suspended or resumed, which could not be written."""
        known = self._suspended.get(uid)
        if known is None:
            return
        if known.is_going_on:
            known.is_going_on = False
            self.release(known.key)
        else:
            self._forget(uid)

    def release(self, gang: str) -> None:
        """Give back the room that is held for a gang which goes on."""
        for uid in self._held.pop(gang, ()):
            self._state.give_back(uid)

    def held_for(self, uid: str) -> str:
        """Return the gang of a job for which room is held, or nothing."""
        known = self._suspended.get(uid)
        return known.key if known is not None and known.key in self._held else ""

    def _suspend(self, suspension: Suspension, now: str) -> JobWrite:
        allocations = self._state.allocations
        uid = next(uid for uid in self._services if self._gangs.get(uid) == suspension.gang)
        resource, job = self._jobs[uid]
        pods = list(allocations.by_gang[suspension.gang].values())
        service = AttainedService(
            is_resumable=True, device_s=suspension.device_s, suspensions=suspension.number
        )
        gang = _as_it_waits(suspension.gang, pods, self._state.groups.get(suspension.gang), now)
        self._suspended[uid] = _Suspended(gang, suspension.gang, service)
        patch = suspend_patch(
            resource,
            uid,
            suspension.message,
            device_s=suspension.device_s,
            suspensions=suspension.number,
        )
        return JobWrite(resource, job, patch, "Suspended", suspension.message)

    def _note_service(self, uid: str) -> None:
        """Note what a job has had and whether it can go on, if anything is known of that."""
        if uid not in self._jobs:
            return
        service = service_of(self._jobs[uid][1], is_saving=uid in self._saving)
        self._services.pop(uid, None)
        if service != AttainedService():
            self._services[uid] = service

    def _forget(self, uid: str) -> None:
        known = self._suspended.pop(uid, None)
        if known is not None:
            self._state.allocations.leaving.discard(known.key)


def service_of(job: SuspendableJob, *, is_saving: bool) -> AttainedService:
    """Return what a job has had before its present run, and whether it can be interrupted.

    Args:
        job: as it says itself.
        is_saving: its training tells of its checkpoints.
    """
    device_s, suspensions = job.service()
    said = job.says_resumable
    can_go_on = is_saving if said is None else said
    return AttainedService(is_resumable=can_go_on, device_s=device_s, suspensions=suspensions)


def _as_it_waits(key: str, pods: list[PodView], group: Group | None, now: str) -> Gang:
    """Return a gang as it takes part in passes while it has no pods, under a key that no other has."""
    own = f"{key} (suspended)"
    group = group or Group(key=key, min_member=len(pods))
    group = msgspec.structs.replace(group, key=own, created=now)
    waiting = [
        msgspec.structs.replace(
            pod,
            uid=f"{pod.uid} (suspended)",
            gang=own,
            queue=group.queue or pod.queue,
            priority=pod.priority if group.priority is None else group.priority,
            node_name="",
            gpu_uuids=(),
            started="",
            bound="",
            created=now,
        )
        for pod in pods
    ]
    return Gang(own, waiting, group)
