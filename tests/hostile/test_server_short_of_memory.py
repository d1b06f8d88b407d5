"""An API server with little memory, and clients that bring more than fits into it: refused with a reason.

No answer of 500, no hang, and what was acknowledged stays. The limit is that of ``ulimit -v``.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections import Counter
from pathlib import Path

import aiohttp
import pytest
from attacked_server import AttackedServer, attacked_server

MEMORY_MIB = 450
OBJECTS = 160
OBJECT_BYTES = 900_000
CLIENTS = 16
HANG_S = 5.0
MAPS = "/api/v1/namespaces/default/configmaps"

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(600)]


class Writers:
    """Clients that create, read and list large objects, and count the answers."""

    def __init__(self, server: AttackedServer) -> None:
        self.server = server
        self.statuses: Counter[str] = Counter()
        self.reasons: set[str] = set()
        self.acknowledged: set[str] = set()
        self.slowest_s = 0.0

    async def ask(self, session: aiohttp.ClientSession, method: str, path: str, body: bytes = b"") -> int:
        begin = time.monotonic()
        try:
            headers = {"Content-Type": "application/json"}
            async with session.request(method, path, data=body or None, headers=headers) as answer:
                found = await answer.read()
                status = answer.status
                if status >= 400:
                    self.reasons.add(json.loads(found)["message"])
        except (aiohttp.ClientError, ConnectionError):
            status = 0
        self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
        self.statuses[f"{method} {status or 'lost'}"] += 1
        return status

    async def create(self, session: aiohttp.ClientSession, number: int) -> None:
        name = f"large-{number}"
        body = {"metadata": {"name": name}, "data": {"text": f"{number} " + "x" * OBJECT_BYTES}}
        if await self.ask(session, "POST", MAPS, json.dumps(body).encode()) == 201:
            self.acknowledged.add(name)

    async def run(self) -> None:
        connector = aiohttp.UnixConnector(str(self.server.paths.api_socket), limit=0)
        numbers = iter(range(OBJECTS))

        async def client(session: aiohttp.ClientSession) -> None:
            for number in numbers:
                await self.create(session, number)
                if number % 8 == 0:
                    await self.ask(session, "GET", f"{MAPS}?limit={20}")
                    await self.ask(session, "GET", MAPS)

        async with aiohttp.ClientSession(connector=connector, base_url="http://x") as session:
            await asyncio.gather(*(client(session) for _ in range(CLIENTS)))


async def names_of(server: AttackedServer) -> set[str]:
    connector = aiohttp.UnixConnector(str(server.paths.api_socket))
    form = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    async with (
        aiohttp.ClientSession(connector=connector, base_url="http://x", headers=form) as session,
        session.get(MAPS) as answer,
    ):
        items = (await answer.json())["items"]
        return {one["metadata"]["name"] for one in items if one["metadata"]["name"].startswith("large-")}


async def test_what_does_not_fit_is_refused_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    with attacked_server(tmp_path / "state", limits={resource.RLIMIT_AS: MEMORY_MIB << 20}) as server:
        writers = Writers(server)
        await writers.run()
        memory_mib = server.memory_mib("VmPeak")
        health_s = await server.healthz_s()
        assert await names_of(server) == writers.acknowledged
    print(
        f"{OBJECTS} objects of {OBJECT_BYTES / 1e6:.1f} MB into {MEMORY_MIB} MiB: "
        f"{dict(sorted(writers.statuses.items()))}; {len(writers.acknowledged)} kept, "
        f"slowest answer {writers.slowest_s:.1f} s, address space {memory_mib:.0f} MiB"
    )
    print("\n".join(sorted(writers.reasons))[:600])
    with attacked_server(tmp_path / "state", limits={resource.RLIMIT_AS: MEMORY_MIB << 20}) as server:
        assert await names_of(server) == writers.acknowledged
    assert not {one for one in writers.statuses if one.split()[1] not in ("200", "201", "429", "507")}
    assert writers.slowest_s < HANG_S
    assert health_s < HANG_S
    assert writers.acknowledged
