"""Asks a program of the user's which hosts there are, as ``horovodrun --host-discovery-script`` does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress

from gangline.errors import UserError
from gangline.launch.hosts import Host, parse_hostfile

LIMIT_S = 10.0
# node-1
_HOST_ALONE = re.compile(r"[\w.-]+")


async def discover(program: Sequence[str], before: Sequence[Host], slots: int = 1) -> Sequence[Host]:
    """Return the hosts that a program prints, ``HOST:SLOTS`` a line; those before where it fails or is late.

    Args:
        program: its words.
        before: what it said last.
        slots: of hosts that it prints without a number.
    """
    with suppress(OSError, UserError, TimeoutError, UnicodeDecodeError):
        process = await asyncio.create_subprocess_exec(
            *program, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise
        if process.returncode == 0:
            lines = [line.strip() for line in said.decode().splitlines()]
            named = [f"{line}:{slots}" if _HOST_ALONE.fullmatch(line) else line for line in lines]
            return parse_hostfile("\n".join(named), program[-1]) if said.strip() else []
    return before
