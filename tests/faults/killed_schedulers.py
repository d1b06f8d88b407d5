"""Two schedulers that a test kills at bindings, gangs that compete, and what the test sees of them.

Two processes compete for a Lease, each behind a proxy of its own, which kills its process at a binding: when
the request has arrived and the server has not seen it, or when the server has done it and the answer is on
its way. A stand-in for job controllers makes the pods anew that are taken away.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fault_proxy import Answer, FaultProxy, Request, faulty, nothing
from prepared_server import direct
from service_process import PROGRAM

from gangline.api.resources import NODES, PODS
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.server import ApiServer
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, NotFound

WAIT_S = 60.0
SIZE = 4


class Schedulers:
    """Two processes; one that was killed or lost its Lease is started again, as a Deployment does."""

    def __init__(self, stack: AsyncExitStack, api: Any, log: Path) -> None:
        self._stack, self._api, self._log = stack, api, log
        self._lives: list[asyncio.Task[None]] = []
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self.plan: list[int] = []
        """At which of its bindings each leader dies; at odd ones when the server has done it."""
        self.kills = 0
        self._requests: list[Request] = []
        self._dead: set[asyncio.subprocess.Process] = set()

    async def start(self) -> None:
        for index in range(2):
            proxy = await self._stack.enter_async_context(faulty(direct(self._api), nothing()))
            proxy.seen = lambda request, is_done, index=index: self._seen(index, request, is_done)
            proxy.rule = lambda request, index=index: Answer(503) if self._is_dead(index) else None
            self._lives.append(asyncio.create_task(self._live(index, proxy)))

    async def _live(self, index: int, proxy: FaultProxy) -> None:
        while True:
            with self._log.open("ab") as log:
                self._processes[index] = await asyncio.create_subprocess_exec(
                    *(sys.executable, str(PROGRAM), "scheduler", proxy.connection().server),
                    *("default", "1.0", proxy.connection().token or ""),
                    stdout=log,
                    stderr=log,
                )
            code = await self._processes[index].wait()
            self.kills += code == -signal.SIGKILL

    def _is_dead(self, index: int) -> bool:
        return self._processes[index] in self._dead

    def _seen(self, index: int, request: Request, is_done: bool) -> None:
        if not self.plan or self._is_dead(index) or not request.path.endswith("/binding"):
            return
        if not is_done:
            self._requests.append(request)
        chosen = self.plan[0]
        is_now = len(self._requests) >= chosen and request is self._requests[chosen - 1]
        if is_now and is_done == bool(chosen % 2):
            self.plan.pop(0)
            self._requests.clear()
            with contextlib.suppress(ProcessLookupError):
                self._processes[index].kill()
            self._dead.add(self._processes[index])

    async def stop(self) -> None:
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class Scene:
    """A cluster with gangs of four single-core pods, and what the test does to it."""

    def __init__(self, client: Client, schedulers: Schedulers) -> None:
        self.client, self.schedulers = client, schedulers
        self.gangs = 0
        self.nodes_of: dict[str, set[str]] = {}
        """By uid: every node that a pod was seen on."""

    async def add_node(self, name: str, cpu: int) -> None:
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "100"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        await self.client.patch(NODES, name, {"status": status}, subresource="status")

    async def add_gang(self, name: str, *, is_bare: bool = False) -> None:
        self.gangs += 1
        for index in range(SIZE):
            await self.client.create(PODS, pod(f"{name}-{index}", name, is_bare=is_bare))

    async def pods(self) -> list[dict[str, Any]]:
        found = (await self.client.list(PODS, "default")).items
        for one in found:
            if node := one["spec"].get("nodeName"):
                self.nodes_of.setdefault(one["metadata"]["uid"], set()).add(node)
        return found

    async def make_anew(self) -> None:
        """Confirm the end of pods that are taken away, as nodes do, and make them anew, as controllers do."""
        while True:
            for one in await self.pods():
                meta = one["metadata"]
                if meta.get("deletionTimestamp"):
                    kinds = {condition["type"] for condition in one["status"].get("conditions", [])}
                    assert "DisruptionTarget" in kinds, f"{meta['name']} is deleted without a word"
                    with contextlib.suppress(NotFound, Conflict):
                        await self.client.delete(PODS, meta["name"], "default", grace_period_s=0)
                    await self.client.create(PODS, pod(meta["name"], meta["labels"][NAME]))
            await asyncio.sleep(0.05)

    async def until_settled(self, whole: int) -> Counter[str]:
        """Wait until so many gangs are bound whole, and no other pod of a gang is; return cores by node."""
        async with asyncio.timeout(WAIT_S):
            while True:
                pods = await self.pods()
                ours = [one for one in pods if one["metadata"].get("labels", {}).get(NAME)]
                bound = Counter(
                    one["metadata"]["labels"][NAME] for one in ours if one["spec"].get("nodeName")
                )
                is_quiet = len(ours) == SIZE * self.gangs
                is_quiet &= not any(one["metadata"].get("deletionTimestamp") for one in ours)
                if is_quiet and list(bound.values()) == [SIZE] * whole and not self.schedulers.plan:
                    used: Counter[str] = Counter()
                    for one in pods:
                        used[one["spec"].get("nodeName", "")] += int(cores(one))
                    return used
                await asyncio.sleep(0.05)


NAME = "pod-group.scheduling.sigs.k8s.io/name"


CONTROLLER = {"apiVersion": "example.com/v1", "kind": "Job", "name": "job", "uid": "1", "controller": True}
"""Of the pods that the stand-in makes anew."""


def pod(name: str, gang: str = "", cpu: int = 1, *, is_bare: bool = False, **spec: Any) -> dict[str, Any]:
    owners = [] if is_bare or not gang else [CONTROLLER]
    labels = {NAME: gang, "pod-group.scheduling.sigs.k8s.io/min-available": str(SIZE)} if gang else {}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "ownerReferences": owners},
        "spec": {"containers": [container], "schedulerName": "gangline-scheduler", **spec},
    }


def cores(one: dict[str, Any]) -> str:
    return str(one["spec"]["containers"][0]["resources"]["requests"]["cpu"])


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    server = ApiServer(ClusterPaths.of("test"))
    await server.start()

    class Api:
        embedded = server

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(direct(Api)))
        schedulers = Schedulers(stack, Api, tmp_path / "schedulers.log")
        found = Scene(client, schedulers)
        anew = asyncio.create_task(found.make_anew())
        try:
            yield found
        finally:
            anew.cancel()
            failed = await asyncio.gather(anew, return_exceptions=True)
            await schedulers.stop()
    await server.stop()
    assert [type(one) for one in failed] == [asyncio.CancelledError], failed
