"""Asks a program of the user's which hosts there are, as ``horovodrun --host-discovery-script`` does."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from gangline.errors import UserError
from gangline.launch.hosts import Host, host_list, parse_hostfile

LIMIT_S = 10.0
PERIOD_S = 1.0
TELL_AGAIN_S = 60.0
"""A failure that differs in its last words alone is told so often."""
_WORDS_MAX = 300
# node-1
_HOST_ALONE = re.compile(r"[\w.-]+")


class DiscoveryError(UserError):
    """The program failed; ``what`` says how, without the words that it wrote."""

    code = "host-discovery"

    def __init__(self, script: str, what: str, words: str = "") -> None:
        super().__init__(
            f"host discovery script `{script}` {what}" + (f": {words}" if words else ""),
            hint="run it by hand: it prints lines of the form HOST or HOST:SLOTS, and exits with code 0",
        )
        self.what, self.words = what, words


async def discover(program: Sequence[str], slots: int = 1) -> list[Host]:
    """Return the hosts that a program prints, ``HOST:SLOTS`` a line.

    Args:
        program: its words; the last one names it in messages.
        slots: of hosts that it prints without a number.

    Raises:
        DiscoveryError: it cannot be run, takes too long, exits with another code, or prints other lines.
    """
    script = program[-1]
    try:
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise DiscoveryError(script, "cannot be run", str(error.strerror)) from error
    said: bytes | None = None
    try:
        async with asyncio.timeout(LIMIT_S):
            said, words = await process.communicate()
    except TimeoutError as error:
        raise DiscoveryError(script, f"was ended: it took longer than {LIMIT_S:.0f} s") from error
    finally:
        if said is None:  # with what it has started, which may outlive it
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise DiscoveryError(script, f"exited with code {process.returncode}", _last_line(words))
    lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
    named = [f"{line}:{slots}" if _HOST_ALONE.fullmatch(line) else line for line in lines]
    try:
        return parse_hostfile("\n".join(named), "its output") if any(lines) else []
    except UserError as error:
        place = f" {error.where.rpartition(':')[2]}" if error.where else ""
        raise DiscoveryError(script, f"printed a wrong line{place}", error.message) from error


def _last_line(words: bytes) -> str:
    lines = words.decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:_WORDS_MAX] if lines else ""


class HostDiscovery:
    """Asks again and again, and tells what goes wrong.

    Args:
        program: its words.
        slots: of hosts that it prints without a number.
        say: is told of failures: each time that they change.
    """

    def __init__(self, program: Sequence[str], slots: int, say: Callable[[str], None]) -> None:
        self._program, self._slots, self._say = program, slots, say
        self._hosts: Sequence[Host] | None = None
        self._told: DiscoveryError | None = None
        self._told_at = 0.0

    async def run(self, change: Callable[[Sequence[Host]], None]) -> None:
        """Give the hosts to ``change`` each time; those that were named last stay where the program fails.

        Raises:
            DiscoveryError: it failed at its first call, as it does where the command line is wrong.
        """
        while True:
            try:
                hosts = await discover(self._program, self._slots)
            except DiscoveryError as error:
                if self._hosts is None:
                    raise
                self._tell(error, self._hosts)
            else:
                self._answers(hosts)
                change(hosts)
            await asyncio.sleep(PERIOD_S)

    def _answers(self, hosts: Sequence[Host]) -> None:
        if self._told is not None:
            self._say(f"host discovery script `{self._program[-1]}` works again: {_shown(hosts)}")
        elif not hosts and self._hosts != []:
            self._say(f"host discovery script `{self._program[-1]}` names no hosts; it is asked every second")
        self._told, self._hosts = None, hosts

    def _tell(self, error: DiscoveryError, hosts: Sequence[Host]) -> None:
        now = time.monotonic()
        if (before := self._told) is not None and before.what == error.what:
            is_old = before.words == error.words
            if is_old or now - self._told_at < TELL_AGAIN_S:
                return
        self._told, self._told_at = error, now
        self._say(f"{error.message}; the hosts stay ({_shown(hosts)}), and it is asked again every second")


def _shown(hosts: Sequence[Host]) -> str:
    return host_list(hosts) or "none"
