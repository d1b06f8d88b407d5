"""kill -9 of the API server while clients write: nothing acknowledged is lost, nothing is done twice.

``GANGLINE_HOSTILE_ROUNDS`` (50) and ``GANGLINE_HOSTILE_SEED`` (1) choose the series.
"""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest
from attacked_server import attacked_server
from remembering_clients import LANES, Memory, client_of, write

ROUNDS = int(os.environ.get("GANGLINE_HOSTILE_ROUNDS", "50"))
SEED = int(os.environ.get("GANGLINE_HOSTILE_SEED", "1"))
LIFE_S_MAX = 0.4

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(7200)]


async def test_nothing_acknowledged_is_lost_and_no_revision_given_twice(tmp_path: Path) -> None:
    random_ = random.Random(SEED)
    memory, slowest_s = Memory(), 0.0
    for round_ in range(ROUNDS):
        begin = time.monotonic()
        with attacked_server(tmp_path / "state") as server:
            slowest_s = max(slowest_s, time.monotonic() - begin)
            async with client_of(server.paths) as client:
                await memory.check(client)
                assert memory.faults == [], f"round {round_}"
                lanes = [
                    asyncio.create_task(write(client, memory, lane, SEED + round_, asyncio.Event()))
                    for lane in range(LANES)
                ]
                await asyncio.sleep(random_.uniform(0.02, LIFE_S_MAX))
                server.process.kill()
                await asyncio.sleep(0.02)  # answers that were on their way
                for lane in lanes:
                    lane.cancel()
                ended = await asyncio.gather(*lanes, return_exceptions=True)
                assert {type(one) for one in ended} <= {asyncio.CancelledError, type(None)}, ended
    with attacked_server(tmp_path / "state") as server:
        async with client_of(server.paths) as client:
            await memory.check(client)
        peak_mib = server.memory_mib()
    print(
        f"{ROUNDS} kills of the server, seed {SEED}: {memory.writes} acknowledged writes, 0 lost, 0 doubled; "
        f"refused {dict(memory.refused)}; slowest start {slowest_s:.1f} s, memory {peak_mib:.0f} MiB"
    )
    assert memory.faults == []
    assert memory.writes > ROUNDS
