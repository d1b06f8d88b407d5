"""The operator on a real control plane: from many MPIJobs to all of their pods and launchers.

`gangline operator` at its own defaults, etcd and kube-apiserver share the machine; nothing else runs, so the
pods stay pending. Bare is a loop that knows what to write: the very writes that the operator made before,
status and events included, through the same client with as many connections. Each sample has a fresh control
plane. The time is from the first job's creation to the last child that a watch shows, launchers included.
Where ``OPERATOR_COMMAND`` starts another operator, that one is measured too, in turns with ours.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import Figure
from laboratory import Laboratory, processor_s
from operator_plane import (
    QUIET_S,
    client_of,
    control_plane,
    fetch,
    operator_process,
    pair_of_ports,
    until_idle,
)

CREATORS = 48
LIMIT_S = 180.0
RESOURCE_VERSION = re.compile(rb'"resourceVersion":"\d+",|,?"resourceVersion":"\d+"')
"""In the status of a job: what it was made from, which the bare loop has no use for."""

IDLE_S = 10.0
LAST_LOOK_S = 12.0
"""Each job is looked at once more ten seconds after its last write; then the operator is idle."""


@dataclass(frozen=True)
class Size:
    """How many jobs of how many workers, and what is to be reached."""

    jobs: int
    workers: int
    goal_s: float
    goal_processor_s: float

    @property
    def name(self) -> str:
        """For the table."""
        return f"{self.jobs} x {self.workers}"


SIZES = [Size(100, 4, 3.0, 2.6), Size(500, 2, 12.0, 8.4), Size(1, 1000, 2.0, 1.6)]


@dataclass
class Write:
    """One request that the operator made; `{uid}` and `{namespace}` stand for those of the job."""

    method: str
    path: str
    params: dict[str, Any] | None
    body: bytes | None
    content_type: str


@dataclass
class Sample:
    """What one run of the operator took."""

    took_s: float = 0.0
    processor_s: float = 0.0
    memory_mb: float = 0.0
    idle_percent: float = 0.0
    writes_again: float = 0.0


@dataclass
class Samples:
    """All of one size."""

    ours: list[Sample] = field(default_factory=list)
    other: list[Sample] = field(default_factory=list)
    bare_s: list[float] = field(default_factory=list)


def manifest(name: str, namespace: str, workers: int) -> dict[str, Any]:
    container = {"name": "main", "image": "mpi", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    launcher = {**container, "command": ["mpirun", "-n", str(workers), "true"]}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": workers, "template": {"spec": {"containers": [container]}}},
            }
        },
    }


async def children_after(
    plane: Any,
    namespace: str,
    size: Size,
    submit: Callable[[Any], Awaitable[None]],
    *,
    resources: tuple[Any, ...] = (),
    count: int = 0,
) -> float:
    """Have jobs submitted and return the time until a watch has shown all pods and launchers. Unit: s.

    Args:
        plane: the control plane.
        namespace: of the jobs.
        size: how many.
        submit: creates them.
        resources: what is counted in place of pods and launchers.
        count: how many of them.
    """
    import msgspec

    from gangline.api.core import AnyObject
    from gangline.api.resources import JOBS, PODS

    async with client_of(plane) as client, client_of(plane) as submitter:
        done = asyncio.Event()
        missing = count or size.jobs * (size.workers + 1)

        async def count_down(resource: Any) -> None:
            nonlocal missing
            since = version
            while True:  # an API server may end a watch at any time, and does so when it is short of time
                async for event in client.watch(resource, namespace, resource_version=since):
                    since = str(msgspec.json.decode(event.object, type=AnyObject).metadata.resource_version)
                    missing -= event.type == "ADDED"
                    if not missing:
                        done.set()

        version = (await client.list(PODS, namespace)).resource_version
        watches = [asyncio.create_task(count_down(resource)) for resource in resources or (PODS, JOBS)]
        started_s = time.perf_counter()
        work = asyncio.ensure_future(submit(submitter))
        finished = asyncio.ensure_future(done.wait())
        try:
            await asyncio.wait((finished, *watches), timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            took_s = time.perf_counter() - started_s
            if not done.is_set():
                ended = [str(watch.exception()) for watch in watches if watch.done()]
                raise SystemExit(f"{missing} children are missing after {took_s:.0f} s; watches: {ended}")
            await work
        finally:
            for task in (*watches, work, finished):
                task.cancel()
            await asyncio.gather(*watches, work, finished, return_exceptions=True)
        return took_s


async def submit_all(
    client: Any, namespace: str, size: Size, then: Callable[[Any, str, str], Awaitable[None]] | None = None
) -> None:
    """Create the jobs over 48 connections; `then` follows each with its name and uid."""
    from gangline.api.resources import MPIJOBS

    slots = asyncio.Semaphore(CREATORS)

    async def one(index: int) -> None:
        async with slots:
            made = await client.create(MPIJOBS, manifest(f"job-{index:03}", namespace, size.workers))
        if then:
            await then(client, made["metadata"]["name"], made["metadata"]["uid"])

    await asyncio.gather(*(one(index) for index in range(size.jobs)))


def writes_of(port: int) -> float:
    """Return how many requests other than GET an operator has made."""
    found = re.findall(
        r'^gangline_api_requests_total\{.*method="(\w+)"\} (\S+)$',
        fetch(port, "/metrics") or "",
        re.MULTILINE,
    )
    return sum(float(count) for method, count in found if method != "GET")


def peak_memory_mb(pid: int) -> float:
    """Return the largest resident size so far. Unit: MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) * 1024 / 1e6


async def until_quiet(port: int) -> None:
    """Wait until the operator has made no write for a while; the last events come after the children."""
    before = -1.0
    while (now := writes_of(port)) != before:
        before = now
        await asyncio.sleep(QUIET_S)


async def ours(size: Size, *, is_idle_measured: bool) -> Sample:
    from control_plane import free_ports

    namespace, sample = f"bench-{uuid.uuid4().hex[:6]}", Sample()
    async with control_plane(namespace) as plane:
        port = pair_of_ports(free_ports)
        with operator_process(plane, port) as pid:
            used_s = processor_s(pid)
            sample.took_s = await children_after(
                plane, namespace, size, lambda client: submit_all(client, namespace, size)
            )
            await until_quiet(port)
            sample.processor_s = processor_s(pid) - used_s
            sample.memory_mb = peak_memory_mb(pid)
            if is_idle_measured:
                await asyncio.sleep(LAST_LOOK_S)
                used_s = processor_s(pid)
                await asyncio.sleep(IDLE_S)
                sample.idle_percent = (processor_s(pid) - used_s) / IDLE_S * 100
        with operator_process(plane, port):
            await until_quiet(port)
            sample.writes_again = writes_of(port)
    return sample


async def other(size: Size, command: list[str]) -> Sample:
    """Measure an operator that is not ours; its processor time shows when it is done."""
    namespace, sample = f"bench-{uuid.uuid4().hex[:6]}", Sample()
    async with control_plane(namespace) as plane:
        words = [*command, "--kubeConfig", str(plane.kubeconfig), "--lock-namespace", namespace]
        with (plane.folder / "operator.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            first = Size(1, 1, 0, 0)  # shows that it is at work
            await children_after(plane, "default", first, lambda one: submit_all(one, "default", first))
            await until_idle(process.pid)
            used_s = processor_s(process.pid)
            sample.took_s = await children_after(
                plane, namespace, size, lambda one: submit_all(one, namespace, size)
            )
            await until_idle(process.pid)
            sample.processor_s = processor_s(process.pid) - used_s
            sample.memory_mb = peak_memory_mb(process.pid)
        finally:
            process.terminate()
            process.wait()
    return sample


async def record(size: Size) -> dict[str, list[Write]]:
    """Run an operator in this process and return its writes by job."""
    import structlog

    from gangline.kube.client import Client
    from gangline.kube.config import load_kubeconfig
    from gangline.operator.operator import Operator

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    namespace = f"bench-{uuid.uuid4().hex[:6]}"
    writes: dict[str, list[Write]] = defaultdict(list)
    uids: dict[str, str] = {}

    class Recording(Client):
        async def send(self, method: str, path: str, **options: Any) -> bytes:
            import msgspec

            answer = await super().send(method, path, **options)
            if method != "GET":
                body = msgspec.json.encode(options.get("body")).decode().replace(namespace, "{namespace}")
                name = re.findall(r"job-\d{3}", path + body)[0]
                text = body.replace(uids[name], "{uid}").encode()
                content_type = options.get("content_type", "application/json")
                at = path.replace(namespace, "{namespace}")
                writes[name].append(Write(method, at, options.get("params"), text, content_type))
            return answer

    async def note(_: Any, name: str, uid: str) -> None:
        uids[name] = uid

    async with (
        control_plane(namespace) as plane,
        Recording(load_kubeconfig(plane.kubeconfig)) as client,
    ):
        operator = Operator(client)
        task = asyncio.create_task(operator.run())
        # Uids must be known before the operator's first write about a job: they are noted as jobs come.
        operator._kinds["MPIJob"].jobs.on_change(
            lambda _, new: uids.update({new.metadata.name: new.metadata.uid}) if new else None
        )
        await children_after(plane, namespace, size, lambda one: submit_all(one, namespace, size, note))
        await asyncio.sleep(3 * QUIET_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return writes


async def bare(size: Size, writes: dict[str, list[Write]]) -> float:
    from gangline.operator.execution import writes_in_flight_max

    namespace = f"bench-{uuid.uuid4().hex[:6]}"
    slots = asyncio.Semaphore(writes_in_flight_max)

    async def replay(client: Any, name: str, uid: str) -> None:
        async def send(write: Write) -> None:
            body = write.body.replace(b"{uid}", uid.encode()) if write.body else b""
            body = RESOURCE_VERSION.sub(b"", body)  # of the run that was listened to
            async with slots:
                await client.send(
                    write.method,
                    write.path.replace("{namespace}", namespace),
                    params=write.params,
                    body=body.replace(b"{namespace}", namespace.encode()),
                    content_type=write.content_type,
                )

        await asyncio.gather(*(send(write) for write in writes[name] if write.method == "POST"))
        for write in writes[name]:
            if write.method != "POST":
                await send(write)

    async with control_plane(namespace) as plane:
        return await children_after(
            plane, namespace, size, lambda client: submit_all(client, namespace, size, replay)
        )


async def measure(size: Size, rounds: int) -> Samples:
    samples = Samples()
    writes = await record(size)
    for index in range(rounds):
        samples.ours.append(await ours(size, is_idle_measured=index == 0))
        samples.bare_s.append(await bare(size, writes))
        if command := os.environ.get("OPERATOR_COMMAND"):
            samples.other.append(await other(size, shlex.split(command)))
    return samples


def figures_of(size: Size, samples: Samples) -> list[Figure]:
    took_s = [sample.took_s for sample in samples.ours]
    used_s = [sample.processor_s for sample in samples.ours]
    beside = []
    if samples.other:
        other_s = [sample.took_s for sample in samples.other]
        other_used_s = [sample.processor_s for sample in samples.other]
        beside = [
            Figure("- beside OPERATOR_COMMAND", "s", took_s, other_s, goal="<= 0.8"),
            Figure("- processor time beside OPERATOR_COMMAND", "s", used_s, other_used_s, goal="<= 1.0"),
        ]
    return [
        Figure(f"{size.name}: all children", "s", took_s, goal=f"<= {size.goal_s}"),
        Figure(f"{size.name}: all children", "s", took_s, samples.bare_s, goal="<= 1.3"),
        *beside,
        Figure("- processor time of the operator", "s", used_s, goal=f"<= {size.goal_processor_s}"),
        Figure(
            "- memory of the operator, peak",
            "MB",
            [sample.memory_mb for sample in samples.ours],
            goal=f"<= {130 * 1.048576:.0f}",
        ),
        Figure(
            "- writes of an operator that finds everything done",
            "count",
            [sample.writes_again for sample in samples.ours],
            goal="<= 0",
        ),
        Figure("- processor when idle", "%", [samples.ours[0].idle_percent], goal="<= 0.5"),
    ]


def run(laboratory: Laboratory) -> list[Figure]:
    from control_plane import programs

    if not (programs() / "kube-apiserver").exists():
        print(f"left out: no control plane in {programs()}; `make kubernetes` builds one")
        return []
    os.environ.pop("GANGLINE_HOME", None)
    figures = []
    for size in SIZES:
        figures += figures_of(size, asyncio.run(measure(size, laboratory.rounds)))
    return figures
