"""A page server over made-up jobs, for the benchmark `page`: `python page_server.py JOBS`.

No cluster is behind it: rows and log lines are put where watches would put them. Commands come by standard
input: `once` changes the newest row, `change N` does so N times a second for ever, `log N` writes so many
lines a second, `cpu` prints the processor time so far.
"""

from __future__ import annotations

import asyncio
import sys
import time
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from gangline.page.guard import Guard
from gangline.page.link_entrance import LinkEntrance
from gangline.page.log_lines import Lines
from gangline.page.rows import JobRow
from gangline.page.scene import Scene
from gangline.page.series import Curves
from gangline.page.server import PageServer
from gangline.page.sessions import Workspace

SECRET = "benchmark"
NEWEST = "mpijob/default/job-0"


class MadeUp(Scene):
    """A scene whose jobs nobody runs."""

    def __init__(self, jobs: int) -> None:
        client: Any = SimpleNamespace(connection=SimpleNamespace(namespace="default"))

        async def nothing(*_: object) -> Any:
            return []

        super().__init__(
            client,
            title="made-up jobs",
            is_local=True,
            has_files=True,
            options="",
            kube_options="",
            explain=nothing,
            runs=nothing,
            run_series=nothing,
        )

        async def known() -> None:
            return

        self.live.wait_synced = known  # type: ignore[method-assign]
        for number in range(jobs):
            created = f"2026-01-{28 - number * 27 // max(jobs, 1):02}T00:00:00Z"
            name = f"job-{number}"
            key = f"mpijob/default/{name}"
            state = ("RUNNING", "PENDING", "SUCCEEDED", "FAILED")[number % 4]
            reason = "needs 8 GPUs; best node n1 has 4 free"
            self.live.jobs.put(JobRow(key, "MPIJob", "default", name, state, reason, created, gpus=8))
        self.feed: Any = SimpleNamespace(
            lines=Lines(has_ranks=True), curves=Curves(), ended=False, error="", watchers=0
        )
        self.feeds.open = lambda pod: self.feed  # type: ignore[method-assign]
        self.feeds.close = lambda uid: None  # type: ignore[method-assign]

    def pod_of(self, key: str, name: str) -> Any:
        return {"metadata": {"uid": "u", "name": name}}

    def chief_of(self, key: str) -> Any:
        return None

    async def detail(self, key: str) -> Any:
        one = {
            "name": "job-0-launcher",
            "status": "Running",
            "chief": True,
            "gpus": 0,
            "node": "n1",
            "ip": "",
        }
        row = self._row(key)
        lists: dict[str, Any] = {"instances": [one | {"restarts": 0, "created": row.created}]}
        lists |= {"conditions": [], "events": [], "commands": {"shell": "", "delete": ""}, "scalable": None}
        return {
            "key": key,
            "row": row,
            **lists,
            "suspended": None,
            "manifest": "",
            "explain": "",
            "placement": "",
            "lines": [],
        }

    def _row(self, key: str) -> JobRow:
        row = self.live.jobs.get(key)
        assert row
        return row

    def change(self) -> None:
        """Change the newest row, as the end of a step would."""
        self.live.jobs.put(replace(self._row(NEWEST), reason=f"changed at {time.time():.4f}"))
        self._changed()


async def every(seconds: float, action: Any) -> None:
    due = time.monotonic()
    while True:
        action()
        due += seconds
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def main(jobs: int) -> None:
    scene = MadeUp(jobs)
    nobody: Any = None
    server = PageServer(LinkEntrance(SECRET, Workspace(nobody, scene, nobody)), Guard())
    tasks = [asyncio.create_task(scene._refresh())]
    print(await server.start(), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := (await reader.readline()).decode().split():
        if line[0] == "cpu":
            print(time.process_time(), flush=True)
        elif line[0] == "once":
            scene.change()
        elif line[0] == "change":
            tasks.append(asyncio.create_task(every(1 / float(line[1]), scene.change)))
        elif line[0] == "log":
            lines = int(line[1])
            piece = b"".join(
                b"[%d] step loss 0.123 images/s 1234.5\n" % (number % 4) for number in range(lines // 20)
            )

            def write(piece: bytes = piece) -> None:
                scene.feed.lines.feed(piece)
                scene._changed()

            tasks.append(asyncio.create_task(every(1 / 20, write)))


asyncio.run(main(int(sys.argv[1])))
