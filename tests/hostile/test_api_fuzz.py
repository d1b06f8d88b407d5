"""Whatever is sent to the API server: no answer of 500, no hang, bounded memory, a short log.

``GANGLINE_HOSTILE_CASES`` (3,000) and ``GANGLINE_HOSTILE_SEED`` (1) choose the series; a failure names the
number of its case.
"""

import asyncio
import os
from pathlib import Path

import pytest
from attacked_server import AttackedServer, Outcome, attacked_server
from fuzzed_requests import BODIES, case

CASES = int(os.environ.get("GANGLINE_HOSTILE_CASES", "3000"))
SEED = int(os.environ.get("GANGLINE_HOSTILE_SEED", "1"))
CLIENTS = 8
HANG_S = 5.0
BROKEN_TIMEOUT_S = 0.2
MEMORY_MIB_MAX = 600
LOG_BYTES_MAX = 256 << 10

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(3600)]


async def series(server: AttackedServer, cases: int, seed: int) -> Outcome:
    """Send the cases of a series by some clients, while another asks how the server is."""
    outcome = Outcome()
    numbers = iter(range(cases))

    async def client() -> None:
        for number in numbers:
            one = case(seed, number)
            timeout_s = HANG_S if one.is_whole else BROKEN_TIMEOUT_S
            status = await server.status_of(one.raw, timeout_s=timeout_s)
            outcome.statuses[status] = outcome.statuses.get(status, 0) + 1
            if status == 500:
                outcome.faults.append(f"case {number}: 500 for {one.raw[:300]!r}")
            if status == 0 and one.is_whole:
                outcome.faults.append(f"case {number}: no answer to {one.raw[:300]!r}")

    async def asker() -> None:
        while True:
            outcome.slowest_healthz_s = max(outcome.slowest_healthz_s, await server.healthz_s())
            await asyncio.sleep(0.05)

    asking = asyncio.create_task(asker())
    try:
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    finally:
        asking.cancel()
    return outcome


async def test_no_request_is_answered_with_a_fault(tmp_path: Path) -> None:
    import aiohttp

    with attacked_server(tmp_path / "state") as server:
        connector = aiohttp.UnixConnector(str(server.paths.api_socket))
        async with aiohttp.ClientSession(connector=connector, base_url="http://x") as session:
            crd = next(body for body in BODIES if body["kind"] == "CustomResourceDefinition")
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            async with session.post(path, json=crd) as answer:
                assert answer.status == 201, await answer.text()
        outcome = await series(server, CASES, SEED)
        print(
            f"{CASES} cases, seed {SEED}: {dict(sorted(outcome.statuses.items()))}; slowest /healthz "
            f"{outcome.slowest_healthz_s:.2f} s, memory {server.memory_mib():.0f} MiB, "
            f"log {server.log.stat().st_size} bytes"
        )
        assert outcome.faults == [], "\n".join(outcome.faults[:20])
        assert outcome.slowest_healthz_s < HANG_S
        assert server.memory_mib() < MEMORY_MIB_MAX
        assert server.log.stat().st_size < LOG_BYTES_MAX, server.log.read_text()[:2000]
