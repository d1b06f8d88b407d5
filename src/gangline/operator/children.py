"""The caches of everything that jobs own, and the way from a child to its job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from gangline.api.core import ConfigMap, Job, ObjectMeta, Pod, Secret, Service, is_true
from gangline.api.pod_group import PodGroup, PriorityClass
from gangline.api.resources import (
    CONFIG_MAPS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOB_SETS,
    JOBS,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
    Resource,
)
from gangline.api.trainer.job import Runtime
from gangline.api.trainer.job_set import JobSet
from gangline.api.training.autoscaler import Autoscaler
from gangline.jobs.gang import Dialect
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.registry import JobKind
from gangline.jobs.waiting import said_of
from gangline.kube.cache import Cache
from gangline.kube.verbs import ObjectClient
from gangline.operator.recent import Recent, is_newer

_CHILD_TYPES: dict[Resource, type[Any]] = {
    SERVICES: Service,
    CONFIG_MAPS: ConfigMap,
    SECRETS: Secret,
    JOBS: Job,
    PODS: Pod,
    HORIZONTAL_POD_AUTOSCALERS: Autoscaler,
    JOB_SETS: JobSet,
}
_BY_JOB = "job"


class JobKey(NamedTuple):
    """Which job, of which kind."""

    kind: str
    namespace: str
    name: str

    @property
    def object_key(self) -> str:
        """The key in a cache: ``NAMESPACE/NAME``."""
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Children:
    """Caches of the objects that carry the label of one kind of job.

    Args:
        client: asks the server.
        kind: whose children.
        namespace: None means all.
        enqueue: called with the job of each child that changed in a way that can matter.
        gangs: adds the PodGroups of this dialect, and all PriorityClasses; None leaves them out.
    """

    def __init__(
        self,
        client: ObjectClient,
        kind: JobKind[Any],
        namespace: str | None,
        enqueue: Callable[[JobKey], None],
        gangs: Dialect | None = None,
    ) -> None:
        self._kind = kind
        self._enqueue = enqueue
        self.recent = Recent()
        self._types = {resource: _CHILD_TYPES[resource] for resource in kind.children}
        if gangs:
            self._types[gangs.resource] = PodGroup
        self._pod_groups = gangs.resource if gangs else None
        selector = "=".join(kind.owner_label)
        self.caches: dict[str, Cache[Any]] = {}
        for resource, type_ in self._types.items():
            cache = Cache(client, resource, type_, namespace=namespace, label_selector=selector)
            cache.add_index(_BY_JOB, self._owner_keys)
            cache.on_change(self._listener(resource))
            self.caches[resource.plural] = cache
        if gangs:
            self.caches[PRIORITY_CLASSES.plural] = Cache(client, PRIORITY_CLASSES, PriorityClass)
        # An operator of one namespace may not look at the cluster's.
        self._runtime_kinds = [one for one in kind.runtimes if one.namespaced or not namespace]
        for resource in self._runtime_kinds:
            self.caches[resource.plural] = Cache(client, resource, Runtime, namespace=namespace)

    def observe(self, key: JobKey, rejected: tuple[str, ...] = (), refused: str = "") -> ObservedChildren:
        """Return what is known of a job's children now."""
        return ObservedChildren(
            services=self._by_name(key, SERVICES),
            config_maps=self._by_name(key, CONFIG_MAPS),
            secrets=self._by_name(key, SECRETS),
            jobs=self._by_name(key, JOBS),
            pods=self._by_name(key, PODS),
            autoscalers=self._by_name(key, HORIZONTAL_POD_AUTOSCALERS),
            pod_groups=self._by_name(key, self._pod_groups) if self._pod_groups else {},
            priorities=self._priorities(),
            serves_pod_groups=self._pod_groups is None or self.caches[self._pod_groups.plural].is_served,
            rejected=rejected,
            refused=refused,
            runtimes=self._runtimes(key.namespace),
            job_sets=self._by_name(key, JOB_SETS),
            serves_job_sets=JOB_SETS.plural in self.caches and self.caches[JOB_SETS.plural].is_served,
        )

    def launchers(self) -> list[Job]:
        """Return the launchers of all jobs; of kinds that have none an empty list."""
        cache = self.caches.get(JOBS.plural)
        return cache.items() if cache else []

    def remember(self, key: JobKey, resource: Resource, answer: dict[str, Any]) -> None:
        """Take what the server answered to a write, unless the cache has it already."""
        type_ = self._types.get(resource)
        if type_ is None or answer.get("kind") == "Status":
            return
        try:
            value = msgspec.convert(answer, type_)
        except msgspec.ValidationError:
            return
        cache = self.caches[resource.plural]
        cached = cache.get(value.metadata.key)
        known = cached.metadata.resource_version if cached else cache.version
        # Not in a cache that is further already: deleted since, and the watch was faster than the answer.
        if not known or is_newer(value.metadata.resource_version, known):
            self.recent.remember(key, resource.plural, value)

    def remember_gone(self, key: JobKey, resource: Resource, name: str, uid: str) -> None:
        """Take that the server has an object no more, unless the cache knows."""
        if resource not in self._types:
            return
        cached = self.caches[resource.plural].get(f"{key.namespace}/{name}")
        if (cached is not None and cached.metadata.uid == uid) or self.recent.has_any(key):
            self.recent.remember_gone(key, resource.plural, name, uid)

    def _by_name(self, key: JobKey, resource: Resource) -> dict[str, Any]:
        cache = self.caches.get(resource.plural)
        if cache is None:
            return {}
        found = {}
        for value in cache.by_index(_BY_JOB, key.object_key):
            meta = value.metadata
            if not self.recent.is_gone(key, resource.plural, meta.name, meta.uid):
                found[meta.name] = value
        for value in self.recent.ahead_of(cache.version, key, resource.plural):
            known = found.get(value.metadata.name)
            if known is None or is_newer(value.metadata.resource_version, known.metadata.resource_version):
                found[value.metadata.name] = value
        return found

    def _priorities(self) -> dict[str, int]:
        cache = self.caches.get(PRIORITY_CLASSES.plural)
        return {found.metadata.name: found.value for found in cache.items()} if cache else {}

    def _runtimes(self, namespace: str) -> dict[tuple[str, str], Runtime]:
        """Return what jobs of a namespace may name: the cluster's and their own."""
        return {
            (resource.kind, runtime.metadata.name): runtime
            for resource in self._runtime_kinds
            for runtime in self.caches[resource.plural].items()
            if runtime.metadata.namespace in ("", namespace)
        }

    def _owner_keys(self, value: Any) -> Iterable[str]:
        name = value.metadata.labels.get(self._kind.name_label)
        return (f"{value.metadata.namespace}/{name}",) if name else ()

    def _listener(self, resource: Resource) -> Callable[[Any, Any], None]:
        def listen(old: Any, new: Any) -> None:
            meta: ObjectMeta = (new or old).metadata
            name = meta.labels.get(self._kind.name_label)
            if not name:
                return
            key = JobKey(self._kind.resource.kind, meta.namespace, name)
            self.recent.caught_up(key, resource.plural, meta.name, meta.resource_version if new else "")
            if not (old and new) or resource is not PODS or _signs(old) != _signs(new):
                self._enqueue(key)

        return listen


def _signs(pod: Pod) -> tuple[Any, ...]:
    """What a reconcile reads of a pod's changes; the rest of its status need not wake anybody."""
    return (
        pod.status.phase,
        pod.status.reason,
        is_true(pod.status.conditions, "Ready"),
        pod.metadata.deletion_timestamp,
        pod.metadata.owner_references,
        pod.metadata.labels,
        said_of(pod),
        tuple(status.restart_count for status in pod.status.container_statuses),
    )
