"""Ask all hosts at once what they have and whom they reach, in under five seconds.

Whatever a start over several hosts needs is tried the way the start does it: through the same remote shell,
by the same names, at ports that ranks would choose. What was found is judged in ``findings``.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gangline.launch.host_session import HostSession
from gangline.launch.hosts import Host
from gangline.launch.preflight.findings import HostFacts, Wanted
from gangline.launch.remote_host import RemoteShell, is_this_host

LIMIT_S = 4.8
ALL_PAIRS_MAX = 16
"""Up to so many hosts each tries every other one; beyond, its two neighbours in the list and the first."""
_FACTS_SHARE = 0.67
"""Of the time; enough for ssh's own bound of 3 s on a connection. The rest is for reaching peers."""
PROBE = Path(__file__).with_name("host_probe.py")


async def ask_hosts(
    hosts: Sequence[Host],
    shell: RemoteShell,
    wanted: Wanted,
    *,
    port: int = 0,
    limit_s: float = LIMIT_S,
    is_local: Callable[[str], bool] = is_this_host,
) -> list[HostFacts]:
    """Return what every host answered, in their order; ends after ``limit_s`` whatever happens.

    Args:
        hosts: to ask.
        shell: how others than this machine are reached.
        wanted: what the start will need.
        port: that ranks will listen at; 0 lets every host choose one.
        limit_s: for all hosts together.
        is_local: tells which names are this machine's.

    Raises:
        OSError: the remote shell's program cannot be run.
    """
    program = PROBE.read_text(encoding="utf-8")
    began = time.monotonic()
    answers = [HostFacts(host) for host in hosts]
    resolving = asyncio.create_task(_resolve(answers, shell))
    local = await asyncio.gather(*(asyncio.to_thread(is_local, host.name) for host in hosts))
    sessions = await asyncio.gather(
        *(
            HostSession.open(host.name, shell, program, is_local=here)
            for host, here in zip(hosts, local, strict=True)
        )
    )
    question = {
        "port": port,
        "want_mpi": wanted.mpi is not None,
        "mpi": wanted.mpi_path,
        "cwd": wanted.cwd,
        "program": wanted.program,
        "path": wanted.path,
    }
    streams = [session.events() for session in sessions]
    try:
        for session in sessions:
            session.send(question)
        until = began + limit_s * _FACTS_SHARE
        await _together(
            [
                _take_facts(one, session, stream, began)
                for one, session, stream in zip(answers, sessions, streams, strict=True)
            ],
            until,
        )
        known = [one for one in answers if one.facts]
        await _together(
            [
                _take_reached(one, session, stream, _peers(one, known))
                for one, session, stream in zip(answers, sessions, streams, strict=True)
                if one.facts
            ],
            began + limit_s,
        )
    finally:
        await _close(answers, sessions)
        resolving.cancel()
        with suppress(asyncio.CancelledError):
            await resolving
    return answers


async def _together(tasks: list[Any], until: float) -> None:
    """Run all until a time; what is not done then is given up."""
    if not tasks:
        return
    running = [asyncio.ensure_future(task) for task in tasks]
    await asyncio.wait(running, timeout=max(0.1, until - time.monotonic()))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def _resolve(answers: Sequence[HostFacts], shell: RemoteShell) -> None:
    """Note which names this machine resolves; ssh's own settings may know names that nobody else does."""
    loop = asyncio.get_running_loop()

    async def one(answer: HostFacts) -> None:
        answer.resolves = None
        try:
            await loop.getaddrinfo(answer.host.name, None)
            answer.resolves = True
        except socket.gaierror:
            answer.resolves = None if not shell.is_ssh else False
        except OSError:
            pass

    await asyncio.gather(*(one(answer) for answer in answers))


async def _take_facts(one: HostFacts, session: HostSession, stream: Any, began: float) -> None:
    async for event, _, payload in stream:
        if event == "facts":
            one.answered_s = time.monotonic() - began
            one.facts = json.loads(payload)
            return


async def _take_reached(one: HostFacts, session: HostSession, stream: Any, peers: list[Any]) -> None:
    sent = time.time()
    session.send(peers)
    async for event, _, payload in stream:
        if event == "clock":
            received = time.time()
            one.clock_error_s = (received - sent) / 2
            one.clock_s = json.loads(payload)["time"] - (sent + received) / 2
        elif event == "reached":
            one.reached = json.loads(payload)
            return


def _peers(one: HostFacts, known: Sequence[HostFacts]) -> list[dict[str, Any]]:
    """Return whom a host tries to reach: all others, or its neighbours and the first."""
    others = [other for other in known if other is not one and other.facts.get("port")]
    if len(known) > ALL_PAIRS_MAX:
        place = known.index(one)
        near = {0, (place + 1) % len(known), (place - 1) % len(known)}
        others = [other for index, other in enumerate(known) if index in near and other in others]
    return [{"name": other.host.name, "port": other.facts["port"]} for other in others]


async def _close(answers: Sequence[HostFacts], sessions: Sequence[HostSession]) -> None:
    """End all sessions; those that gave no answer at once, with what their shell said."""
    silent = [(one, session) for one, session in zip(answers, sessions, strict=True) if not one.facts]
    for one, session in silent:
        one.shell_code = session.process.returncode
        session.kill()
    await asyncio.gather(*(session.close() for session in sessions))
    for one, session in silent:
        one.words = session.words.decode(errors="replace")
