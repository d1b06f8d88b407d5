"""Jobs that are played through, and the world in which they are: users and nodes are the test's.

It has a connection of its own: pods run as soon as they are there, and end as scripts say. ``job_mix`` has
the scripts of MPIJobs, ``training_mix`` those of the other kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gangline.api.resources import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    MPIJOBS,
    PODS,
    PYTORCHJOBS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    SECRETS,
    SERVICES,
    TFJOBS,
    TRAINJOBS,
    Resource,
)
from gangline.kube.cache import Cache
from gangline.kube.client import Client
from gangline.kube.errors import NotFound

JOB_RESOURCES = (MPIJOBS, PYTORCHJOBS, TFJOBS, TRAINJOBS)
_COMPONENTS = ("mpi-job-controller", *(f"{one.kind.lower()}-controller" for one in JOB_RESOURCES[1:]))
_CHILDREN = (SERVICES, CONFIG_MAPS, SECRETS, JOBS, PODS, SCHEDULER_PLUGINS_POD_GROUPS)
_LABEL = "training.kubeflow.org/job-name"
_ROLE = "training.kubeflow.org/job-role"

until_limit_s = 300.0
"""Each wait of a script; an operator that is killed all the time takes its time."""

Script = Callable[["Played"], Awaitable[None]]


@dataclass(frozen=True)
class Shape:
    """One kind of job.

    Attributes:
        script: what happens to it.
        ends: status and reason of each condition at the end; none for an empty status.
        made: how many objects of each kind are ever made for it.
        left: how many of them are there at the end.
        restarts: of the gang, or of pods.
        spec: laid over an MPIJob's; of any other kind the whole spec.
        resource: of the job.
    """

    name: str
    script: Script
    ends: dict[str, tuple[str, str]]
    made: dict[str, int]
    left: dict[str, int]
    spec: dict[str, Any] = field(default_factory=dict)
    workers: int = 2
    restarts: int = 0
    launcher: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ("mpirun", "true")
    resource: Resource = MPIJOBS


def children(workers: int, launchers: int = 1, jobs: int = 1) -> dict[str, int]:
    """Return the objects of a job by kind."""
    found = {"Service": 1, "ConfigMap": 1, "Secret": 1, "Job": jobs, "Pod": workers + launchers}
    return {kind: count for kind, count in found.items() if count}


class World:
    """A namespace, seen over a connection without faults; knows every object that ever was."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.changes = 0
        self._woken = asyncio.Event()
        self.ever: dict[str, dict[str, Any]] = {}
        self.jobs = {resource.kind: self._cache(resource) for resource in JOB_RESOURCES}
        self.children = {resource.kind: self._cache(resource) for resource in _CHILDREN}

    def _cache(self, resource: Any) -> Cache[dict[str, Any]]:
        cache: Cache[dict[str, Any]] = Cache(self.client, resource, dict, namespace=self.namespace)

        def note(old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
            if new:
                self.ever.setdefault(new["metadata"]["uid"], {"kind": resource.kind, **new})
            self.changes += 1
            self._woken.set()  # this one for all who wait now, a new one for all who come
            self._woken = asyncio.Event()

        cache.on_change(note)
        return cache

    async def until(self, condition: Callable[[], Any], limit_s: float = until_limit_s) -> Any:
        """Wait until something is true of what is seen, and return it."""
        async with asyncio.timeout(limit_s):
            while not (found := condition()):
                await self._woken.wait()
            return found

    def pods(self, job: str, role: str = "") -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.children["Pod"].items()
            if pod["metadata"]["labels"].get(_LABEL) == job
            and role in ("", pod["metadata"]["labels"].get(_ROLE))
            and not pod["metadata"].get("deletionTimestamp")
        ]

    def has_mounts(self, job: str) -> bool:
        mounted = ("Secret", f"{job}-ssh"), ("ConfigMap", f"{job}-config")
        return all(self.children[kind].get(f"{self.namespace}/{name}") for kind, name in mounted)

    async def set_phase(self, pod: dict[str, Any], phase: str, **status: Any) -> None:
        """Report what a node would; a pod that is gone is none's concern."""
        ready = "True" if phase == "Running" else "False"
        patch = {"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}], **status}}
        patch["metadata"] = {"uid": pod["metadata"]["uid"]}
        name = pod["metadata"]["name"]
        with contextlib.suppress(NotFound):
            await self.client.patch(PODS, name, patch, self.namespace, subresource="status")

    async def run_nodes(self) -> None:
        """Have pods run once what they mount is there; launchers once all workers do, as mpirun waits."""
        told: set[str] = set()
        while True:
            changes = self.changes
            for kind, jobs in self.jobs.items():
                for job in jobs.items():
                    name = job["metadata"]["name"]
                    pods = self._startable(job) if kind == MPIJOBS.kind else self.pods(name)
                    for pod in pods:
                        uid = pod["metadata"]["uid"]
                        if _phase(pod) == "Pending" and uid not in told:
                            told.add(uid)
                            await self.set_phase(pod, "Running")
            if self.changes == changes:
                await self._woken.wait()

    def _startable(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        name = job["metadata"]["name"]
        if not self.has_mounts(name):
            return []
        workers = self.pods(name, "worker")
        wanted = (job["spec"]["mpiReplicaSpecs"].get("Worker") or {}).get("replicas", 0)
        are_up = sum(_phase(pod) == "Running" for pod in workers) >= wanted
        return [*workers, *(self.pods(name, "launcher") if are_up else [])]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        caches = [*self.jobs.values(), *self.children.values()]
        tasks = [asyncio.create_task(cache.run()) for cache in caches]
        try:
            await asyncio.gather(*(cache.wait_synced() for cache in caches))
            tasks.append(asyncio.create_task(self.run_nodes()))
            yield self
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task


class Played:
    """One job that runs through its script."""

    def __init__(self, world: World, shape: Shape, name: str = "") -> None:
        self.world = world
        self.shape = shape
        self.name = name or shape.name
        self.uid = ""

    @property
    def object(self) -> dict[str, Any]:
        jobs = self.world.jobs[self.shape.resource.kind]
        return jobs.get(f"{self.world.namespace}/{self.name}") or {}

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        found = self.object.get("status", {}).get("conditions", [])
        return {one["type"]: (one["status"], one["reason"]) for one in found}

    def has(self, type_: str, status: str = "True") -> bool:
        return self.conditions.get(type_, ("", ""))[0] == status

    async def play(self) -> None:
        """Submit the job and go through its script."""
        job = manifest(self.shape, self.name, self.world.namespace)
        made = await self.world.client.create(self.shape.resource, job)
        self.uid = made["metadata"]["uid"]
        await self.shape.script(self)

    async def until(self, condition: Callable[[], Any]) -> Any:
        try:
            return await self.world.until(condition)
        except TimeoutError:
            raise AssertionError(f"{self.name} waits: {self.object.get('status')}") from None

    async def runs(self, restarts: int = 0) -> None:
        """Wait until the status says that all runs, in the attempt."""
        status = lambda: self.object.get("status", {})  # noqa: E731
        await self.until(lambda: status().get("restarts", 0) == restarts and self.has("Running"))

    async def launcher(self) -> dict[str, Any]:
        """Wait until the launcher's pod runs, and return it."""

        def running() -> list[dict[str, Any]]:
            return [pod for pod in self.world.pods(self.name, "launcher") if _phase(pod) == "Running"]

        (pod,) = await self.until(running)
        return dict(pod)

    async def pod(self, end: str, but: str = "") -> dict[str, Any]:
        """Wait until the pod whose name ends so runs, not the one of that uid, and return it."""

        def running() -> list[dict[str, Any]]:
            return [
                pod
                for pod in self.world.pods(self.name)
                if pod["metadata"]["name"] == f"{self.name}-{end}"
                and pod["metadata"]["uid"] != but
                and _phase(pod) == "Running"
            ]

        (pod,) = await self.until(running)
        return dict(pod)

    async def edit(self, spec: dict[str, Any]) -> None:
        await self.world.client.patch(self.shape.resource, self.name, {"spec": spec}, self.world.namespace)

    def problems(self) -> list[str]:
        """Return what is not as it must be at the end."""
        shape = self.shape
        ends = {type_: state for type_, state in shape.ends.items() if state[0]}
        restarts = self.object.get("status", {}).get("restarts", 0)
        checks = [
            ("conditions", self.conditions, ends),
            ("restarts", restarts, shape.restarts),
            ("made", self._made(), shape.made),
            ("left", dict(Counter(self._mine(self._present()))), shape.left),
        ]
        if not self.object:  # garbage collection takes what an operator makes that has not heard of the end
            checks = [check for check in checks if check[0] != "made"]
        return [f"{self.name}: {what} {found}, not {want}" for what, found, want in checks if found != want]

    def _made(self) -> dict[str, int]:
        """Return how many children of each kind were made.

        A job that is resumed before what its first run had beside its pods went keeps that: as good as new.
        """
        made = Counter(self._mine(self.world.ever.values()))
        for kind in ("PodGroup", "Service"):
            wanted = self.shape.made.get(kind, 0)
            if 0 < made[kind] < wanted and "resumed" in self.shape.name:
                made[kind] = wanted
        return dict(+made)

    def _present(self) -> list[dict[str, Any]]:
        caches = self.world.children.items()
        return [{"kind": kind, **found} for kind, cache in caches for found in cache.items()]

    def _mine(self, objects: Any) -> list[str]:
        """Return the kinds of the objects that the job or its launchers own."""
        ever = self.world.ever
        launchers = {
            uid for uid, found in ever.items() if found["kind"] == "Job" and _owner(found) == self.uid
        }
        return [found["kind"] for found in objects if _owner(found) in {self.uid, *launchers}]


def _owner(found: dict[str, Any]) -> str:
    return str((found["metadata"].get("ownerReferences") or [{}])[0].get("uid", ""))


def _phase(pod: dict[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def manifest(shape: Shape, name: str, namespace: str) -> dict[str, Any]:
    """Return the job of a shape."""
    head = {
        "apiVersion": shape.resource.api_version,
        "kind": shape.resource.kind,
        "metadata": {"name": name, "namespace": namespace, "annotations": shape.annotations},
    }
    if shape.resource is not MPIJOBS:
        return {**head, "spec": shape.spec}
    container = {"name": "main", "image": "gangline/base"}
    launcher = {"template": {"spec": {"containers": [{**container, "command": [*shape.command]}]}}}
    roles: dict[str, Any] = {"Launcher": {**launcher, **shape.launcher}}
    if shape.workers:
        roles["Worker"] = {"replicas": shape.workers, "template": {"spec": {"containers": [container]}}}
    return {**head, "spec": {"mpiReplicaSpecs": roles, **shape.spec}}


async def settle(world: World, played: list[Played], limit_s: float = until_limit_s) -> None:
    """Wait until all is as it must be, and say what is not when that takes too long."""
    try:
        await world.until(lambda: not any(job.problems() for job in played), limit_s)
    except TimeoutError:
        problems = [problem for job in played for problem in job.problems()]
        raise AssertionError("\n".join(problems)) from None


async def events_of(world: World) -> Counter[tuple[str, str, str]]:
    """Return how often each thing was said: by job, type and reason."""
    told: Counter[tuple[str, str, str]] = Counter()
    for event in (await world.client.list(EVENTS, world.namespace)).items:
        if event.get("source", {}).get("component") in _COMPONENTS:
            key = event["involvedObject"]["name"], event["type"], event["reason"] + event["message"]
            told[key] += event.get("count", 1)
    return told
