"""The API server of the one-machine cluster beside kube-apiserver with etcd, asked the same by one client.

3,000 pods of 2 KB that no scheduler takes, over TLS on 48 connections, while one watch follows them: created,
read, given a status, listed by a label that 300 of them have. Ours runs as `gangline up` starts it, the other
one without controllers and without a bound on requests. Each round starts both anew.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from figures import Figure
from laboratory import REPOSITORY, Laboratory, processes_of, proportional_memory_mb

sys.path.insert(0, str(REPOSITORY / "tests" / "kubernetes"))

PODS = 3000
CONNECTIONS = 48
POD_BYTES = 2000
LISTS = 200
LABELS = 10
WATCH_TIMEOUT_S = 60.0
PATH = "/api/v1/namespaces/default/pods"
Samples = dict[str, list[float]]


def pod(index: int) -> dict[str, Any]:
    """Return a pod of 2 KB that waits for ever."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{index}", "labels": {"part": str(index % LABELS)}},
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    body["metadata"]["annotations"] = {"filling": "x" * (POD_BYTES - len(json.dumps(body)))}
    return body


async def timed_ms(count: int, ask: Callable[[int], Awaitable[object]]) -> tuple[float, list[float]]:
    """Ask `count` times on all connections; return the calls a second and the time of each. Unit: ms."""
    left = iter(range(count))
    took_ms: list[float] = []

    async def work() -> None:
        for index in left:
            started = time.perf_counter()
            await ask(index)
            took_ms.append(1e3 * (time.perf_counter() - started))

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(work())
    return count / (time.perf_counter() - started), took_ms


async def measure(kubeconfig: Path) -> dict[str, float]:
    """Return calls a second, and the 99th percentile of each call's time in ms, by the name of the call."""
    from gangline.api.resources import PODS as KIND
    from gangline.kube.client import Client
    from gangline.kube.config import load_kubeconfig

    created_s: dict[str, float] = {}
    lags_ms: list[float] = []

    async def follow(client: Client, version: str) -> None:
        async for event in client.watch(KIND, "default", resource_version=version):
            name = json.loads(event.object)["metadata"]["name"]
            if event.type == "ADDED" and name.startswith("pod-"):
                lags_ms.append(1e3 * (time.perf_counter() - created_s[name]))
            if len(lags_ms) == PODS:
                return

    async with Client(load_kubeconfig(kubeconfig), user_agent="benchmark") as client:

        async def create(index: int) -> None:
            created_s[f"pod-{index}"] = time.perf_counter()
            await client.request("POST", PATH, body=pod(index))

        async def patch(index: int) -> None:
            await client.request(
                "PATCH",
                f"{PATH}/pod-{index}/status",
                body={"status": {"phase": "Running", "podIP": f"10.0.{index >> 8}.{index & 255}"}},
                content_type="application/merge-patch+json",
            )

        async def get(index: int) -> None:
            await client.send("GET", f"{PATH}/pod-{index}")

        async def list_some(index: int) -> None:
            await client.send("GET", PATH, params={"labelSelector": f"part={index % LABELS}"})

        first = await client.request("GET", PATH)
        watch = asyncio.create_task(follow(client, first["metadata"]["resourceVersion"]))
        found: dict[str, float] = {}
        parts: list[tuple[str, int, Callable[[int], Coroutine[Any, Any, None]]]] = [
            ("create", PODS, create),
            ("get", PODS, get),
            ("status patch", PODS, patch),
            ("list of 300", LISTS, list_some),
        ]
        for name, count, ask in parts:
            found[name], took_ms = await timed_ms(count, ask)
            found[f"{name}, p99"] = statistics.quantiles(took_ms, n=100)[98]
        async with asyncio.timeout(WATCH_TIMEOUT_S):
            await watch
        found["create to watch event, p99"] = statistics.quantiles(lags_ms, n=100)[98]
    return found


@contextmanager
def ours(laboratory: Laboratory) -> Iterator[tuple[Path, Callable[[], float]]]:
    laboratory.gangline("down", "--purge", check=False)
    laboratory.gangline("up")
    kubeconfig = Path(laboratory.gangline("kubeconfig", "--path").strip())
    try:
        yield kubeconfig, lambda: sum(map(proportional_memory_mb, processes_of(laboratory.home)))
    finally:
        laboratory.gangline("down", "--purge", check=False)


@contextmanager
def kubernetes(laboratory: Laboratory) -> Iterator[tuple[Path, Callable[[], float]]]:
    from control_plane import ControlPlane
    from operator_plane import until_idle
    from scheduler_binding import LIFTED

    with ControlPlane(controllers=False, apiserver_options=LIFTED) as plane:
        asyncio.run(until_idle(plane.pids["kube-apiserver"]))
        yield plane.kubeconfig, lambda: sum(map(proportional_memory_mb, plane.pids.values()))


Start = Callable[[Laboratory], AbstractContextManager[tuple[Path, Callable[[], float]]]]


def sample(laboratory: Laboratory, start: Start, into: Samples) -> None:
    with start(laboratory) as (kubeconfig, memory_mb):
        for name, value in asyncio.run(measure(kubeconfig)).items():
            into[name].append(value)
        into["memory afterwards"].append(memory_mb())


GOALS = {
    "create": ">= 1.5",
    "create, p99": "<= 0.5",
    "get": ">= 1.0",
    "get, p99": "<= 0.5",
    "status patch": ">= 1.5",
    "status patch, p99": "<= 0.5",
    "list of 300": ">= 2",
    "list of 300, p99": "<= 0.5",
    "create to watch event, p99": "",
    "memory afterwards": "",
}
UNITS = {"memory afterwards": "MB"}


def run(laboratory: Laboratory) -> list[Figure]:
    from control_plane import programs

    if not (programs() / "kube-apiserver").exists():
        print(f"left out: no control plane in {programs()}; `make kubernetes` builds one")
        return []
    own: Samples = defaultdict(list)
    other: Samples = defaultdict(list)
    for _ in range(laboratory.rounds):
        sample(laboratory, ours, own)
        sample(laboratory, kubernetes, other)
    return [
        Figure(name, UNITS.get(name, "ms" if "p99" in name else "1/s"), own[name], other[name], goal=goal)
        for name, goal in GOALS.items()
    ]
