"""What the page shows of a cluster, kept up to date by watches: every job as a row, pods by job, nodes.

A burst of changes is worked out once for all who look: jobs of which something changed are marked, and their
rows made anew when the next look is due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gangline.api.resources import NODES, PODS, Resource
from gangline.clock import now
from gangline.kube.cache import Cache
from gangline.kube.errors import ApiError, Forbidden, Gone
from gangline.page.job_list import JobList
from gangline.page.rows import JobRow, RowProgress, job_key, row_of
from gangline.workloads.job_state import is_controlled
from gangline.workloads.job_view import view_job
from gangline.workloads.kinds import KINDS, WorkloadKind

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

failing_s: Final = 40.0
"""For how long a failed watch counts as failing: longer than the pause before the next try."""
_BY_JOB: Final = "job"
_STAND_IN: Final[Obj] = {"metadata": {"name": "-", "uid": "-"}, "spec": {}}


def listed_kinds() -> list[WorkloadKind]:
    """Return the kinds of jobs that a list shows: those with pods of their own."""
    return [kind for kind in KINDS if kind.is_job and kind.pod_labels]


class LiveCluster:
    """Jobs, pods and nodes of a cluster.

    Attributes:
        jobs: every job that no other object controls.
        forbidden: what the user may not read, in words.
    """

    def __init__(self, client: ObjectClient, on_change: Callable[[], None]) -> None:
        self._client, self._on_change = client, on_change
        self._kinds = {kind.resource: kind for kind in listed_kinds()}
        self._labels = {resource: _name_label(kind) for resource, kind in self._kinds.items()}
        self._dirty: set[tuple[Resource, str]] = set()
        self._progress: dict[str, RowProgress] = {}
        self._failing, self._failing_until_s = "", 0.0
        self.jobs = JobList()
        self.forbidden: tuple[str, ...] = ()
        self._begun = asyncio.Event()
        self._awaited: list[Cache[Obj]] = []
        self._jobs: dict[Resource, Cache[Obj]] = {}
        self._pods: Cache[Obj] = Cache(client, PODS, dict)
        self.nodes: Cache[Obj] = Cache(client, NODES, dict)

    async def run(self) -> None:
        """Follow the cluster until cancelled; kinds that are not served have no jobs."""
        outside, own = "jobs and pods outside of namespace ", self._client.connection.namespace
        lacking, refused = dict[str, None](), set[Resource]()
        namespaces: dict[Resource, str | None] = {}
        for resource in (*self._kinds, PODS, NODES):
            namespaces[resource] = None
            try:
                await self._client.any(resource)
            except Forbidden:
                lacking[f"{outside}{own}" if resource.namespaced else resource.plural] = None
                namespaces[resource] = own
                if resource.namespaced and not await self._may_list(resource, own):
                    lacking[f"{resource.plural} of namespace {own}"] = None
                    refused.add(resource)
            except ApiError:  # it is not served, or not reached: the cache goes on trying
                pass
        self.forbidden = tuple(lacking)
        for resource in self._kinds.keys() - refused:
            cache = self._cache(resource, namespaces[resource])
            cache.on_change(self._on_job(resource))
            self._jobs[resource] = cache
        self._pods = self._cache(PODS, namespaces[PODS])
        self._pods.add_index(_BY_JOB, self._job_labels)
        self._pods.on_change(self._on_pod)
        self.nodes = self._cache(NODES, None)
        self.nodes.on_change(lambda *_: self._on_change())
        caches: list[Cache[Obj]] = [*self._jobs.values(), *([] if PODS in refused else [self._pods])]
        self._awaited = list(caches)
        if namespaces[NODES] is None:
            caches.append(self.nodes)
        self._begun.set()
        async with asyncio.TaskGroup() as group:
            for cache in caches:
                group.create_task(cache.run(), name=f"cache-{cache.resource.plural}")

    async def _may_list(self, resource: Resource, namespace: str) -> bool:
        try:
            await self._client.any(resource, namespace)
        except Forbidden:
            return False
        except ApiError:  # not served, or not reached: the cache goes on trying
            pass
        return True

    def _cache(self, resource: Resource, namespace: str | None) -> Cache[Obj]:
        async def failed(error: Any, _silent_s: float) -> None:
            if resource == PODS and not isinstance(error, Gone):  # an old version is only listed anew
                self._failing, self._failing_until_s = str(error), time.monotonic() + failing_s
                self._on_change()

        return Cache(self._client, resource, dict, namespace=namespace, on_failure=failed)

    async def wait_synced(self) -> None:
        """Wait until jobs and pods are known, or found not to be served."""
        await self._begun.wait()
        for cache in self._awaited:
            await cache.wait_known()
        self.refresh()

    @property
    def unreachable(self) -> str:
        """Why nothing new comes from the cluster; empty while it does."""
        return self._failing if time.monotonic() < self._failing_until_s else ""

    # Jobs.

    def find(self, key: str) -> tuple[Resource, Obj] | None:
        """Return a job by its key."""
        kind, namespace, name = (*key.split("/"), "", "")[:3]
        for resource, cache in self._jobs.items():
            if resource.kind.lower() == kind:
                found = cache.get(f"{namespace}/{name}")
                return (resource, {**found, "kind": resource.kind}) if found is not None else None
        return None

    def pods_of(self, resource: Resource, job: Obj) -> list[Obj]:
        """Return the pods of a job."""
        metadata, kind = job["metadata"], self._kinds[resource]
        value = f"{metadata.get('namespace', '')}/{self._labels[resource]}={metadata['name']}"
        return [pod for pod in self._pods.by_index(_BY_JOB, value) if kind.belongs(job, pod)]

    def placed_pods(self) -> list[Obj]:
        """Return the pods that hold room on a node."""
        return [
            pod
            for pod in self._pods.items()
            if pod["spec"].get("nodeName")
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def refresh(self) -> None:
        """Make the rows anew of jobs of which something changed."""
        dirty, self._dirty = self._dirty, set()
        moment = now()
        for resource, name in dirty:
            job = self._jobs[resource].get(name)
            key = job_key(resource.kind, *name.split("/", 1))
            if job is None or is_controlled(job):
                self.jobs.drop(key)
                self._progress.pop(key, None)
                continue
            job = {**job, "kind": resource.kind}
            row = row_of(view_job(job, self.pods_of(resource, job), moment))
            self.jobs.put(self._with_progress(row))

    def note_progress(self, key: str, progress: RowProgress) -> None:
        """Take how far a training is."""
        row = self.jobs.get(key)
        if row is None or self._progress.get(key) == progress:
            return
        self._progress[key] = progress
        self.jobs.put(self._with_progress(row))
        self._on_change()

    def _with_progress(self, row: JobRow) -> JobRow:
        progress = self._progress.get(row.key)
        return msgspec.structs.replace(row, progress=progress) if progress else row

    # Changes.

    def _on_job(self, resource: Resource) -> Callable[[Obj | None, Obj | None], None]:
        def changed(old: Obj | None, new: Obj | None) -> None:
            metadata = (new or old or {})["metadata"]
            self._mark(resource, f"{metadata.get('namespace', '')}/{metadata['name']}")

        return changed

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        for pod in (old, new):
            for value in self._job_labels(pod) if pod else ():
                namespace, _, rest = value.partition("/")
                label, _, name = rest.rpartition("=")
                for resource, jobs in self._jobs.items():
                    if self._labels[resource] == label and jobs.get(f"{namespace}/{name}") is not None:
                        self._mark(resource, f"{namespace}/{name}")

    def _mark(self, resource: Resource, name: str) -> None:
        self._dirty.add((resource, name))
        self._failing_until_s = 0.0
        self._on_change()

    def _job_labels(self, pod: Obj) -> Iterable[str]:
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        for label in set(self._labels.values()) & labels.keys():
            yield f"{metadata.get('namespace', '')}/{label}={labels[label]}"


def _name_label(kind: WorkloadKind) -> str:
    """Return the label of a job's pods that has its name."""
    assert kind.pod_labels
    labels = kind.pod_labels(_STAND_IN)
    return next(key for key, value in labels.items() if value == "-")
