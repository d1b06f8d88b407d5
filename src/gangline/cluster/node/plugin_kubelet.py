"""The process in which device plugins register: ``gangline.deviceplugin.kubelet``, started when one is there.

It is another program so that the agent, which always runs, goes without gRPC.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.errors import ClusterError

_PROGRAM = ("-m", "gangline.deviceplugin.kubelet")
_SOURCE = Path(__file__).parents[3]
LINE_BYTES_MAX = 1 << 22
CALL_TIMEOUT_S = 30.0
Told = Callable[[str, str, "dict[str, bool] | None"], None]


class PluginKubelet:
    """The process, while somebody needs it.

    Args:
        told: takes folder, resource and devices (id -> healthy) as plugins tell them; None once one is gone.
        ended: is called when the process has ended by itself.
    """

    def __init__(self, told: Told, ended: Callable[[], None]) -> None:
        self._told = told
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0

    async def start(self) -> None:
        """Start it, if it does not run."""
        if self._process is not None:
            return
        path = os.pathsep.join(filter(None, (str(_SOURCE), os.environ.get("PYTHONPATH", ""))))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, *_PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def stop(self) -> None:
        """End it by the end of its input."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()

    async def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            ClusterError: the process or the plugin refuses, or does not answer in time.
        """
        if self._process is None or self._process.stdin is None:
            raise ClusterError("no device plugin can be asked: the program that asks them does not run")
        self._count += 1
        number, answer = self._count, asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self._process.stdin.write(json.dumps({"id": number} | request).encode() + b"\n")
            async with asyncio.timeout(CALL_TIMEOUT_S):
                found: dict[str, Any] = await answer
        except (TimeoutError, OSError) as error:
            raise ClusterError(f"a device plugin was not asked: {error or 'no answer in time'}") from None
        finally:
            self._answers.pop(number, None)
        if refusal := found.get("error"):
            raise ClusterError(refusal)
        return dict(found["answer"])

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            message = json.loads(line)
            if "id" not in message:
                self._told(message["folder"], message["resource"], message["devices"])
            elif (answer := self._answers.get(message["id"])) and not answer.done():
                answer.set_result(message)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result({"error": "the program that asks device plugins has ended"})
        if process is self._process:
            self._process = None
            self._ended()
