"""Carries out plans: the actions of a stage at the same time, errors sorted by what they mean."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangline.api.core import AnyObject, ObjectMeta
from gangline.api.mpijob import AnyJob
from gangline.api.resources import JOBS, PODS, SECRETS, Resource
from gangline.jobs.observed import is_controlled_by
from gangline.jobs.observed_job import is_leftover, resource_exists
from gangline.jobs.plan import Action, Create, Delete, Emit, EnsureKeyPair, Object, Patch, Plan, Telling
from gangline.kube.apply import merge_patch
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from gangline.kube.verbs import ObjectClient
from gangline.operator.children import Children, JobKey
from gangline.operator.key_pair import certify, generate_key_pair

writes_in_flight_max = 32
"""Requests of one operator at the same time, over all jobs."""


@dataclass(slots=True)
class PlanResult:
    """What became of a plan's actions.

    Attributes:
        rejected: objects that the server will never take, in the words of the events.
        foreign: names that somebody else has.
        has_leftovers: whether an object of an earlier job of this name, or the end of the namespace, is in
            the way; it will go.
        failed: errors that may pass.
        warnings: the events for them.
        told: events of what was done.
    """

    rejected: list[str] = field(default_factory=list)
    foreign: list[Emit] = field(default_factory=list)
    has_leftovers: bool = False
    failed: list[ApiError] = field(default_factory=list)
    warnings: list[Emit] = field(default_factory=list)
    told: list[Emit] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether everything was done."""
        return not (self.rejected or self.foreign or self.has_leftovers or self.failed)


class Execution:
    """Does what plans say, through one client."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(writes_in_flight_max)

    async def run(self, key: JobKey, job: AnyJob, children: Children, plan: Plan) -> PlanResult:
        """Carry out the stages in order; stop after one that was not done whole."""
        outcome = PlanResult()
        for stage in plan.stages:
            await asyncio.gather(*(self._do(key, job, children, action, outcome) for action in stage))
            if not outcome.is_good:
                break
        return outcome

    async def _do(
        self, key: JobKey, job: AnyJob, children: Children, action: Action, outcome: PlanResult
    ) -> None:
        try:
            resource, answer = await self._send(key, action, job.metadata, outcome)
        except ApiError as error:
            creates = isinstance(action, Create | EnsureKeyPair)
            if creates and isinstance(error, Invalid):
                outcome.rejected.append(_complaint(action, error))
                return
            if creates and _is_namespace_going(error):
                outcome.has_leftovers = True
                return
            outcome.failed.append(error)
            telling = _telling(action)
            if telling is not None and not error.retryable:
                verb = "creating" if creates else "deleting"
                outcome.warnings.append(Emit("Warning", telling.refused, f"Error {verb}: {error.message}"))
            elif creates and not error.retryable:  # that a server is away is no news of the job
                outcome.warnings.append(Emit("Warning", "MPIJobFailed", _complaint(action, error)))
        else:
            if isinstance(action, Delete) and _is_gone(answer):
                children.remember_gone(key, resource, action.name, action.uid)
            elif answer:
                children.remember(key, resource, answer)
            if answer and (telling := _telling(action)):
                outcome.told.append(telling.done)

    async def _send(
        self, key: JobKey, action: Action, owner: ObjectMeta, outcome: PlanResult
    ) -> tuple[Resource, Object]:
        match action:
            case Create():
                return action.resource, await self._create(
                    key, action.resource, action.object, owner, outcome
                )
            case EnsureKeyPair():
                return SECRETS, await self._ensure_key_pair(key, action, owner, outcome)
            case Patch():
                return action.resource, await self._patch(action)
            case Delete():
                return action.resource, await self._delete(action)

    async def _create(
        self, key: JobKey, resource: Resource, wanted: Object, owner: ObjectMeta, outcome: PlanResult
    ) -> Object:
        try:
            async with self._slots:
                return await self._client.create(resource, wanted)
        except AlreadyExists:
            return await self._claim(key, resource, wanted, owner, outcome)

    async def _claim(
        self, key: JobKey, resource: Resource, wanted: Object, owner: ObjectMeta, outcome: PlanResult
    ) -> Object:
        """A name is taken: fine if by us, and then the object gets the labels by which it is watched."""
        name, namespace = wanted["metadata"]["name"], wanted["metadata"]["namespace"]
        try:
            found = await self._client.get(resource, name, namespace)
        except NotFound:
            outcome.has_leftovers = True
            return {}
        meta = msgspec.convert(found, AnyObject).metadata
        if is_leftover(meta, owner, key.kind):
            outcome.has_leftovers = True
            return {}
        if not is_controlled_by(meta, owner.uid):
            outcome.foreign.append(resource_exists(resource.kind, name, key.kind))
            return {}
        labels = wanted["metadata"].get("labels") or {}
        if any(meta.labels.get(label) != value for label, value in labels.items()):
            async with self._slots:
                return await self._client.patch(resource, name, {"metadata": {"labels": labels}}, namespace)
        return found

    async def _ensure_key_pair(
        self, key: JobKey, action: EnsureKeyPair, owner: ObjectMeta, outcome: PlanResult
    ) -> Object:
        if action.private_key:
            made = await asyncio.to_thread(certify, action.private_key)
        else:
            made = await asyncio.to_thread(generate_key_pair, action.has_certificate)
        data = {**action.secret["data"], **made}
        if not action.exists:
            return await self._create(key, SECRETS, {**action.secret, "data": data}, owner, outcome)
        meta = action.secret["metadata"]
        return await self._patch(Patch(SECRETS, meta["namespace"], meta["name"], {"data": data}))

    async def _patch(self, action: Patch) -> Object:
        try:
            async with self._slots:
                return await self._client.patch(
                    action.resource,
                    action.name,
                    action.body,
                    action.namespace,
                    subresource=action.subresource,
                )
        except Forbidden:
            return await self._update(action)
        except NotFound:
            return {}  # gone meanwhile: the cache will say so and the job is looked at again

    async def _update(self, action: Patch) -> Object:
        """Patch by list and update: the MPI operator's own ClusterRole gives no more on most children.

        Raises:
            Conflict: somebody was faster.
        """
        async with self._slots:
            named = f"metadata.name={action.name}"
            found = (await self._client.list(action.resource, action.namespace, field_selector=named)).items
            if not found:
                return {}
            patched = merge_patch(found[0], action.body)
            return await self._client.update(action.resource, patched, subresource=action.subresource)

    async def _delete(self, action: Delete) -> Object:
        try:
            async with self._slots:
                return await self._client.delete(
                    action.resource, action.name, action.namespace, uid=action.uid
                )
        except (NotFound, Conflict):
            return {}


def _telling(action: Action) -> Telling | None:
    return action.telling if isinstance(action, Create | Delete) else None


def _is_gone(answer: Object) -> bool:
    """Whether the answer to a DELETE is the last state of the object, or there was none; others live on."""
    meta = answer.get("metadata") or {}
    return not (meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"))


def _is_namespace_going(error: ApiError) -> bool:
    """Whether nothing can be created because the namespace is being deleted; the job goes with it."""
    causes = error.details.get("causes") or []
    return isinstance(error, Forbidden) and any(
        cause.get("reason") == "NamespaceTerminating" for cause in causes
    )


def _complaint(action: Action, error: ApiError) -> str:
    """Return upstream's words for an object that was not taken."""
    if isinstance(action, Create) and action.resource in (PODS, JOBS):
        return f"{'worker' if action.resource == PODS else 'launcher'} pod created failed: {error.message}"
    return f"{_name_of(action)} was refused: {error.message}"


def _name_of(action: Any) -> str:
    match action:
        case Create():
            return f"{action.resource.kind} {action.object['metadata']['name']}"
        case EnsureKeyPair():
            return f"Secret {action.secret['metadata']['name']}"
        case _:
            return f"{action.resource.kind} {action.name}"
