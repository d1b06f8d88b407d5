"""What a machine does to the server: full and read-only disks, damaged files, jumping clocks.

What was acknowledged stays, no answer is 500, and once the cause is gone all goes on.
"""

from __future__ import annotations

import asyncio
import copy
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacked_server import AttackedServer, attacked_server
from remembering_clients import LANES, Memory, client_of, write

from gangline.cluster.server.store.salvage import Salvage, salvage

SEED = int(os.environ.get("GANGLINE_HOSTILE_SEED", "1"))
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
DAMAGES = max(int(os.environ.get("GANGLINE_HOSTILE_ROUNDS", "50")) // 5, 2)
HANG_S = 5.0
DISK_MIB = 24
START_LIMIT_S = 20.0

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(600)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own that can be full or read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def write_for(
    server: AttackedServer, memory: Memory, seconds: float, *, payload: int = 500, seed: int = SEED
) -> None:
    """Have all lanes write for a while; none may hang."""
    async with client_of(server.paths) as client:
        stop = asyncio.Event()
        lanes = [
            asyncio.create_task(write(client, memory, lane, seed, stop, payload=payload))
            for lane in range(LANES)
        ]
        slowest = 0.0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            slowest = max(slowest, await server.healthz_s())
            await asyncio.sleep(0.05)
        stop.set()
        await asyncio.wait_for(asyncio.gather(*lanes), HANG_S)
    assert slowest < HANG_S


async def check(server: AttackedServer, memory: Memory) -> None:
    async with client_of(server.paths) as client:
        await memory.check(client)
    assert memory.faults == []


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small disk: needs root")
async def test_a_full_disk_costs_no_acknowledged_write(small_disk: Path) -> None:
    memory, filler = Memory(), small_disk / "filler"
    with attacked_server(small_disk / "state") as server:
        await write_for(server, memory, 0.5)
        before = memory.writes
        fill(filler)
        await write_for(server, memory, 1.5, payload=20_000, seed=SEED + 1)
        await check(server, memory)
        assert memory.refused, "the disk took everything"
        filler.unlink()
        during = memory.writes
        await write_for(server, memory, 1.0, seed=SEED + 2)
        assert memory.writes > during, "it does not go on by itself"
    with attacked_server(small_disk / "state") as server:
        await check(server, memory)
    refused = dict(memory.refused)
    print(f"full disk: {before} writes before it, refused {refused}; {memory.writes} acknowledged, 0 lost")


def fill(path: Path) -> None:
    """Write until the disk takes no more."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(file, b"x" * 4096)
    except OSError:
        pass
    finally:
        os.close(file)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small disk: needs root")
async def test_a_read_only_disk_is_told_and_costs_nothing(small_disk: Path) -> None:
    memory, state = Memory(), small_disk / "state"
    with attacked_server(state) as server:
        await write_for(server, memory, 0.5)
        await check(server, memory)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    code, text = start_once(state)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    print(f"read-only disk: exit code {code}: {text.splitlines()[-1] if text else ''}")
    assert code != 0
    assert str(state) in text
    with attacked_server(state) as server:
        await check(server, memory)


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime of Debian is not installed")
async def test_a_clock_that_jumps_stops_nothing(tmp_path: Path) -> None:
    now = tmp_path / "now"
    now.write_text("+0")
    fake = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(now),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    memory = Memory()
    with attacked_server(tmp_path / "state", environment=fake) as server:
        for jump in ("+0", "+400d", "-3d", "+3600", "-20y", "+0"):
            now.write_text(jump)
            before = memory.writes
            await write_for(server, memory, 0.4, seed=SEED + before)
            await check(server, memory)
            assert memory.writes > before, f"nothing is written after a jump of {jump}"
    with attacked_server(tmp_path / "state") as server:
        await check(server, memory)
    print(f"clock jumps: {memory.writes} acknowledged writes, 0 lost, refused {dict(memory.refused)}")


async def test_damaged_files_beside_the_store_are_refused_by_name_or_cost_nothing(tmp_path: Path) -> None:
    random_ = random.Random(SEED)
    state = tmp_path / "state"
    memory = Memory()
    with attacked_server(state) as server:
        await write_for(server, memory, 1.0)
        await check(server, memory)
    files = {path: path.read_bytes() for path in state.rglob("*") if path.is_file() and path.stat().st_size}
    told, served = 0, 0
    for path in sorted(path for path in files if not path.name.startswith("store.sqlite")):
        for one, content in files.items():
            one.write_bytes(content)
        damaged = bytearray(files[path])
        at = random_.randrange(len(damaged))
        damaged[at : at + 64] = random_.randbytes(64)
        path.write_bytes(bytes(damaged) if random_.random() < 0.7 else bytes(damaged[: at + 1]))
        code, text = start_once(state)
        # The module alone shows errors as Python does; `gangline up` shows the same in words.
        last = text.strip().splitlines()[-1] if text.strip() else ""
        is_told = last.startswith("gangline.") or str(state) in text
        assert code == 0 or is_told, f"{path.name}: {text[-2000:]}"
        told, served = told + (code != 0), served + (code == 0)
    print(f"damaged files: {told} starts refused by name, {served} served")


async def test_a_damaged_store_is_refused_with_the_way_out_or_costs_nothing(tmp_path: Path) -> None:
    random_ = random.Random(SEED)
    state, memory = tmp_path / "state", Memory()
    with attacked_server(state) as server:
        await write_for(server, memory, 1.0, payload=9000)
    with attacked_server(state) as server:
        await write_for(server, memory, 0.5, payload=3000, seed=SEED + 1)
        server.process.kill()  # so that there is a log, too
    files = {path: path.read_bytes() for path in state.iterdir() if path.name.startswith("store.sqlite")}
    assert {path.name for path in files} >= {"store.sqlite", "store.sqlite-wal"}
    told, whole, readable = 0, 0, []
    for _ in range(DAMAGES):
        for path, content in files.items():
            path.write_bytes(content)
        damage(random_.choice(sorted(path for path in files if path.suffix != ".sqlite-shm")), random_)
        code, text = start_once(state)
        if code == 0:
            with attacked_server(state) as server:
                await check(server, copy.deepcopy(memory))
            whole += 1
            continue
        assert "gangline store export --cluster state > objects.yaml" in text, text[-2000:]
        told += 1
        readable.append(len(salvage(state / "store.sqlite").objects))
    expected = len(salvage_of(files, tmp_path / "sound").objects)
    print(
        f"damaged stores: {told} refused by name, {whole} served whole; {expected} objects were there, "
        f"at least {min(readable, default=expected)} can be exported, with some that were deleted"
    )
    assert told + whole == DAMAGES


def damage(path: Path, random_: random.Random) -> None:
    """Put random bytes into a file, or zeros; of a log anywhere but in its last transaction."""
    size = path.stat().st_size if path.suffix == ".sqlite" else int(path.stat().st_size * 0.9)
    length = random_.choice([1, 16, 64, 4096])
    with path.open("r+b") as file:
        file.seek(random_.randrange(max(size - length, 1)))
        file.write(random_.choice([random_.randbytes(length), bytes(length)]))


def salvage_of(files: dict[Path, bytes], folder: Path) -> Salvage:
    folder.mkdir()
    for path, content in files.items():
        (folder / path.name).write_bytes(content)
    return salvage(folder / "store.sqlite")


def start_once(state: Path) -> tuple[int, str]:
    """Start a server on a state; return 0 when it serves, else its exit code, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gangline.cluster.server.server", "--state", str(state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.paths import ClusterPaths

    paths = ClusterPaths("dev", state)
    deadline = time.monotonic() + START_LIMIT_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if Cluster(paths).status().ready:
                process.terminate()
                return 0, process.communicate(timeout=30)[0]
            time.sleep(0.05)
        assert process.poll() is not None, "it neither serves nor ends"
        return process.returncode, process.communicate()[0]
    finally:
        process.kill()
