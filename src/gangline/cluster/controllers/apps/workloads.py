"""Carries out the plans of the workloads that make pods, or other workloads, from a template.

One class for all kinds: it gathers what a plan starts from, does its steps, and writes its status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from gangline import clock
from gangline.api.core import Node
from gangline.api.resources import Resource
from gangline.cluster.controllers.apps.plan import (
    ApiWrite,
    Failure,
    Seen,
    WorkloadObject,
    WorkloadPlan,
    selects,
)
from gangline.cluster.controllers.caches import wait_synced
from gangline.cluster.controllers.current_objects import CurrentObjects
from gangline.kube.cache import Cache
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from gangline.kube.events import Recorder
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient

WORKERS = 8
"""Objects of one kind in work at once."""

WRITES_AT_ONCE_MAX = 64
"""Steps of one object on their way at once."""


class WorkloadController:
    """Brings the objects of one kind forward.

    Args:
        client: of the API server.
        component: who reports the events.
        owners: the objects.
        children: the kinds that they own.
        plan: decides.
        nodes: watched too where the plan asks for them.
    """

    def __init__(
        self,
        client: ObjectClient,
        component: str,
        owners: CurrentObjects[WorkloadObject],
        children: Iterable[CurrentObjects[Any]],
        plan: Callable[[WorkloadObject, Seen, datetime], WorkloadPlan],
        nodes: Cache[Node] | None = None,
    ) -> None:
        self._client, self._plan, self._nodes = client, plan, nodes
        self._owners = owners
        self._children: Mapping[Resource, CurrentObjects[Any]] = {kind.resource: kind for kind in children}
        self._recorder = Recorder(client, component)
        self._queue: WorkQueue[str] = WorkQueue()
        self._failures: dict[str, Failure] = {}
        owners.cache.on_change(self._on_owner)
        for kind in self._children.values():
            kind.cache.on_change(self._on_child)
        if nodes is not None:
            nodes.on_change(self._on_node)

    async def run(self) -> None:
        """Work until cancelled."""
        await wait_synced(self._owners.cache, *(kind.cache for kind in self._children.values()))
        if self._nodes is not None:
            await wait_synced(self._nodes)
        try:
            await work(self._queue, self.reconcile, workers=WORKERS)
        finally:
            await self._recorder.close()

    def _on_owner(self, old: WorkloadObject | None, new: WorkloadObject | None) -> None:
        if new is not None:
            self._queue.add(new.metadata.key)
        elif old is not None:
            self._failures.pop(old.metadata.key, None)

    def _on_child(self, old: Any, new: Any) -> None:
        for obj in (old, new):
            if obj is None:
                continue
            owner = obj.metadata.controller
            if owner is not None and owner.kind == self._owners.resource.kind:
                self._queue.add(f"{obj.metadata.namespace}/{owner.name}")
        if new is not None and new.metadata.controller is None:
            for one in self._owners.cache.items():
                is_near = one.metadata.namespace == new.metadata.namespace
                if is_near and selects(one.spec.get("selector"), new.metadata.labels):
                    self._queue.add(one.metadata.key)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _placing(old) == _placing(new):
            return
        for one in self._owners.cache.items():
            self._queue.add(one.metadata.key)

    async def reconcile(self, key: str) -> float | None:
        """Bring one object forward; returns when to look again, in seconds."""
        owner = self._owners.get(key)
        if owner is None:
            return None
        plan = self._plan(owner, self._seen(owner), clock.now())
        for type_, reason, message in plan.events:
            self._emit(owner, type_, reason, message)
        try:
            await self._carry_out(owner, plan.steps)
        except ApiError:
            if key in self._failures:
                failed = self._plan(owner, self._seen(owner), clock.now())
                await self._write_status(owner, failed.status)
            raise
        self._failures.pop(key, None)
        await self._write_status(owner, plan.status)
        return plan.requeue_after_s

    def _seen(self, owner: WorkloadObject) -> Seen:
        meta = owner.metadata
        children: dict[Resource, Sequence[Any]] = {
            resource: [*kind.controlled_by(meta.uid), *kind.orphans_of(meta.namespace)]
            for resource, kind in self._children.items()
        }
        nodes = self._nodes.items() if self._nodes is not None else ()
        return Seen(children=children, nodes=list(nodes), failure=self._failures.get(meta.key, Failure()))

    async def _carry_out(self, owner: WorkloadObject, steps: tuple[ApiWrite, ...]) -> None:
        limit = asyncio.Semaphore(WRITES_AT_ONCE_MAX)

        async def one(step: ApiWrite) -> None:
            async with limit:
                await self._do(owner, step)

        for outcome in await asyncio.gather(*map(one, steps), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _do(self, owner: WorkloadObject, step: ApiWrite) -> None:
        target = self._owners if step.resource == self._owners.resource else self._children.get(step.resource)
        try:
            answer = await self._write(step)
        except AlreadyExists as error:
            if step.may_exist:
                return
            self._fail(owner, step, error)
            raise
        except (NotFound, Conflict):
            if step.verb == "delete":
                return  # gone, or another one of its name is there
            raise
        except ApiError as error:
            self._fail(owner, step, error)
            raise
        if target is not None:
            target.note(answer)
        if step.reason:
            name = step.meta.name or (answer.get("metadata") or {}).get("name", "")
            self._emit(owner, "Normal", step.reason, step.message.replace("{name}", name))

    def _write(self, step: ApiWrite) -> Awaitable[dict[str, Any]]:
        meta = step.meta
        if step.verb == "create":
            return self._client.create(step.resource, step.body)
        if step.verb == "delete":
            return self._client.delete(step.resource, meta.name, meta.namespace, uid=meta.uid)
        return self._client.patch(step.resource, meta.name, step.body, meta.namespace)

    def _fail(self, owner: WorkloadObject, step: ApiWrite, error: ApiError) -> None:
        if isinstance(error, Forbidden) and is_namespace_going(error):
            return
        self._failures[owner.metadata.key] = Failure(error.reason, str(error))
        self._emit(owner, "Warning", f"Failed{step.verb.capitalize()}", f"Error: {error}")

    async def _write_status(self, owner: WorkloadObject, status: dict[str, Any]) -> None:
        if status == owner.status:
            return
        meta = owner.metadata
        gone = dict.fromkeys(set(owner.status) - set(status))
        patch = {"metadata": {"uid": meta.uid}, "status": {**gone, **status}}
        try:
            answer = await self._client.patch(
                self._owners.resource, meta.name, patch, meta.namespace, subresource="status"
            )
        except (NotFound, Conflict):
            return
        self._owners.note(answer)

    def _emit(self, owner: WorkloadObject, type_: str, reason: str, message: str) -> None:
        resource = self._owners.resource
        self._recorder.event((resource.api_version, resource.kind, owner.metadata), type_, reason, message)


def is_namespace_going(error: ApiError) -> bool:
    """Return whether a write was refused because its namespace is being deleted."""
    return any(cause.get("reason") == "NamespaceTerminating" for cause in error.details.get("causes") or ())


def _placing(node: Node) -> Any:
    return node.metadata.labels, node.spec
