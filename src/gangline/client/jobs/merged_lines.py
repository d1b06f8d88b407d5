"""Lines of several logs as they come: each whole, and none held back for another log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

Log = AsyncGenerator[tuple[bytes, Any], None]

LINES_MAX = 1000
"""That are read and not taken yet; then reading waits."""


async def merged_lines(logs: Sequence[Log]) -> AsyncGenerator[str, None]:
    """Yield the lines of logs, without their ends, until all are over.

    Raises:
        GanglineError: what reading a log raised.
    """
    lines: asyncio.Queue[str | None] = asyncio.Queue(LINES_MAX)

    async def read(log: Log) -> None:
        held = b""
        try:
            async with aclosing(log) as pieces:
                async for shown, _ in pieces:
                    *whole, held = (held + shown).split(b"\n")
                    for line in whole:
                        await lines.put(line.decode(errors="replace"))
            if held:
                await lines.put(held.decode(errors="replace"))
        finally:
            await lines.put(None)

    readers = [asyncio.create_task(read(log)) for log in logs]
    try:
        left = len(readers)
        while left:
            line = await lines.get()
            if line is None:
                left -= 1
            else:
                yield line
        for reader in readers:
            await reader
    finally:
        for reader in readers:
            reader.cancel()
