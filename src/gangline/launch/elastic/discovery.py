"""Asks a program of the user's which hosts there are, as ``horovodrun --host-discovery-script`` does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from gangline.errors import UserError
from gangline.launch.hosts import Host, parse_hostfile

LIMIT_S = 10.0


async def discover(program: str, before: Sequence[Host]) -> Sequence[Host]:
    """Return the hosts that a program prints, ``HOST:SLOTS`` a line; those before where it fails or is late.

    Args:
        program: an executable file.
        before: what it said last.
    """
    with suppress(OSError, UserError, TimeoutError, UnicodeDecodeError):
        process = await asyncio.create_subprocess_exec(
            program, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise
        if process.returncode == 0:
            return parse_hostfile(said.decode(), program) if said.strip() else []
    return before
