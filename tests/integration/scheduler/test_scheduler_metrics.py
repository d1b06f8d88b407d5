"""``/metrics`` of the scheduler says what it has done and what waits."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gangline.scheduler.service import SchedulerOptions, SchedulerService


@asynccontextmanager
async def running(service: SchedulerService) -> AsyncIterator[SchedulerService]:
    task = asyncio.create_task(service.run())
    try:
        while "metrics" not in service.ports:
            await asyncio.sleep(0.005)
        yield service
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def metrics(port: int) -> dict[str, float]:
    """Return sample -> value."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    found = re.findall(r"^([a-z_]+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


async def test_bindings_passes_and_reasons_to_wait_are_counted(idle_cluster: Any) -> None:
    cluster = idle_cluster
    await cluster.add_node("node-0", cpu="2")
    options = SchedulerOptions(health_port=0, metrics_port=0)
    async with running(SchedulerService(cluster.client, options)) as service:
        await cluster.add_pod("one", cpu="1")
        await cluster.until_bound("one")
        await cluster.add_pod("two", cpu="4")
        await cluster.until_unschedulable("two")

        found = await metrics(service.ports["metrics"])

        assert found["gangline_scheduler_is_leader"] == 1
        assert found["gangline_scheduler_gangs_placed_total"] == 1
        assert found["gangline_scheduler_pods_bound_total"] == 1
        assert found['gangline_scheduler_waiting_gangs{reason="NoRoom"}'] == 1
        assert found["gangline_scheduler_pass_seconds_count"] >= 2
        assert found["gangline_scheduler_gangs_preempted_total"] == 0
        assert found['gangline_api_requests_total{code="201",method="POST"}'] >= 1
        assert found["process_cpu_seconds_total"] > 0

        await cluster.add_node("node-1", cpu="4")
        await cluster.until_bound("two")

        async def is_empty() -> bool:
            found = await metrics(service.ports["metrics"])
            is_counted = found["gangline_scheduler_pods_bound_total"] == 2
            return is_counted and found['gangline_scheduler_waiting_gangs{reason="NoRoom"}'] == 0

        await cluster.until(is_empty)
