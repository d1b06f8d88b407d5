"""The operator as a process: one of two leads, and both tell how they are."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gangline.api.crds import crds
from gangline.api.resources import CRDS, JOBS, LEASES, MPIJOBS
from gangline.errors import UserError
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.kube.http_paths import PathAnswer, serve_paths
from gangline.kube.lease import LeaseTiming
from gangline.operator.service import OperatorOptions, OperatorService

Build = Callable[..., dict[str, Any]]
TIMING = LeaseTiming(duration_s=15.0, renew_deadline_s=10.0, retry_s=0.1)
WAIT_S = 60.0


async def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(service: OperatorService) -> AsyncIterator[OperatorService]:
    task = asyncio.create_task(service.run())
    try:
        await until(lambda: "metrics" in service.ports or task.done())
        yield service
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def metrics(text: str) -> dict[str, float]:
    """Return sample -> value of the text format."""
    return {
        name: float(value) for name, value in re.findall(r"^([a-z_]+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
    }


@pytest.fixture
async def options(client: Client, api: Any) -> OperatorOptions:
    for crd in crds():
        await apply(client, CRDS, crd)

    async def is_served() -> bool:
        with contextlib.suppress(NotFound):
            await client.list(MPIJOBS, limit=1)
            return True
        return False

    await until(is_served)
    return OperatorOptions(
        namespace=api.namespace,
        leader_elect=True,
        lock_namespace=api.namespace,
        lease_timing=TIMING,
        health_port=0,
        metrics_port=0,
    )


async def test_one_of_two_leads_and_the_other_takes_over(
    client: Client, api: Any, make_job: Build, options: OperatorOptions
) -> None:
    async with running(OperatorService(client, options)) as second:
        await until(lambda: second.is_leader)
        async with running(OperatorService(client, options)) as standby:
            assert not standby.is_leader
            assert await get(standby.ports["health"], "/readyz") == (200, "ok")
            _, text = await get(standby.ports["metrics"], "/metrics")
            assert metrics(text)["mpi_operator_is_leader"] == 0
            assert "mpi_operator_jobs_created_total" not in metrics(text)
    lease = await client.get(LEASES, "mpi-operator", api.namespace)
    assert lease["spec"]["holderIdentity"] == ""

    async with running(OperatorService(client, options)) as next_one:
        await until(lambda: next_one.is_leader)
        await client.create(MPIJOBS, make_job())

        async def has_launcher() -> bool:
            with contextlib.suppress(NotFound):
                return bool(await client.get(JOBS, "pi-launcher", api.namespace))
            return False

        await until(has_launcher)


async def test_metrics_have_the_names_of_the_mpi_operator_and_more(
    client: Client, api: Any, make_job: Build, options: OperatorOptions
) -> None:
    async with running(OperatorService(client, options)) as service:
        await client.create(MPIJOBS, make_job())

        async def is_counted() -> dict[str, float]:
            _, text = await get(service.ports["metrics"], "/metrics")
            found = metrics(text)
            label = f'mpi_operator_job_info{{launcher="pi-launcher",namespace="{api.namespace}"}}'
            written = found.get('gangline_api_requests_total{code="201",method="POST"}', 0)
            is_done = found.get("mpi_operator_jobs_created_total") == 1  # behind the children
            return found if is_done and found.get(label) == 1 and written >= 7 else {}

        found = await until(is_counted)

    assert found["mpi_operator_is_leader"] == 1
    assert found["gangline_operator_reconcile_seconds_count"] >= 1
    assert found["mpi_operator_jobs_successful_total"] == 0
    assert found["mpi_operator_jobs_failed_total"] == 0
    assert found["gangline_operator_queue_depth"] >= 0
    assert (
        found['gangline_operator_reconcile_seconds_bucket{le="+Inf"}']
        == found["gangline_operator_reconcile_seconds_count"]
    )
    assert found['gangline_watch_restarts_total{resource="pods"}'] == 0
    assert found["process_cpu_seconds_total"] > 0


async def test_health_is_told_and_other_paths_are_not_found(client: Client, options: OperatorOptions) -> None:
    async with running(OperatorService(client, options)) as service:
        port = service.ports["health"]
        assert await get(port, "/healthz?verbose") == (200, "ok")
        assert (await get(port, "/metrics"))[0] == 404
        assert (await get(port, "/healthz", "POST"))[0] == 405
        assert await get(port, "/healthz", "HEAD") == (200, "")

        async def is_ready() -> bool:
            return (await get(port, "/readyz"))[0] == 200

        await until(is_ready)


async def test_a_port_in_use_is_said() -> None:
    paths = {"/": lambda: PathAnswer(200, b"ok")}
    async with serve_paths("127.0.0.1", 0, paths) as port:
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with serve_paths("127.0.0.1", port, paths):
                pass
