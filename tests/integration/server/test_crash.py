"""kill -9 of a process that writes all the time: what was acknowledged is there, revisions never repeat."""

import subprocess
import sys
from pathlib import Path

from gangline.cluster.server.store.store import Store

WRITER = """
import asyncio, sys
from pathlib import Path
from gangline.cluster.server.store.store import Store

async def main():
    store = Store(Path(sys.argv[1]))
    async def write(lane):
        n = 0
        while True:
            n += 1
            key = ("/things", "ns", f"{lane}-{n % 7}")
            before = store.latest(*key)
            if before is not None and n % 5 == 0:
                last = {**before.obj, "metadata": dict(before.obj["metadata"])}
                entry = await store.remove(key, last, before)
                print("removed", entry.revision, key[2], flush=True)
            else:
                obj = {"metadata": {"name": key[2]}, "n": n, "text": "x" * 2000}
                entry = await store.put(key, obj, before)
                print("written", entry.revision, key[2], flush=True)
    await asyncio.gather(*(write(lane) for lane in range(8)))

asyncio.run(main())
"""
ROUNDS = 4
WRITES_BEFORE_KILL = 400


def acknowledged_before_kill(path: Path) -> list[tuple[str, int, str]]:
    """Run the writer, kill it in the middle, return what it was told is safe, in order of revision."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(WRITES_BEFORE_KILL)]
        process.kill()
        lines += process.stdout.readlines()
    records = [line.split() for line in lines if line.endswith("\n")]
    return sorted(((verb, int(rev), name) for verb, rev, name in records), key=lambda record: record[1])


async def test_acknowledged_writes_survive_a_kill_and_revisions_never_repeat(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    seen: set[int] = set()
    for _ in range(ROUNDS):
        acknowledged = acknowledged_before_kill(path)
        revisions = {revision for _, revision, _ in acknowledged}
        assert len(acknowledged) >= WRITES_BEFORE_KILL
        assert not revisions & seen
        seen |= revisions

        store = Store(path)
        try:
            last = {name: (verb, revision) for verb, revision, name in acknowledged}
            assert store.revision >= max(revisions)
            for name, (verb, revision) in last.items():
                entry = store.get("/things", "ns", name)
                # A later write may have reached the disk unacknowledged; an earlier state would be a loss.
                if entry is None:
                    assert verb == "removed" or store.revision > revision
                else:
                    assert entry.revision >= revision
                    assert entry.obj["metadata"]["resourceVersion"] == str(entry.revision)
        finally:
            await store.close()
