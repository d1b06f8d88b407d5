"""A terminal of the page: a shell in a pod of a job, with the rights of the one who looks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import WSMsgType

from gangline.client.jobs.beside_rank import SHELL, beside_rank
from gangline.errors import GanglineError, UserError
from gangline.kube.pod_streams.program import PodProgram
from gangline.workloads.running_pod import choose_pod, default_container

if TYPE_CHECKING:
    from aiohttp import web

    from gangline.page.sessions import Workspace

Obj = dict[str, Any]

SHELLS_MAX: Final = 16
"""Of one user at once."""
SIDE_MAX: Final = 1000
_SHELL: Final = (*SHELL[:2], f"TERM=xterm-256color; export TERM; {SHELL[2]}")


class Size(msgspec.Struct, frozen=True):
    """Of the terminal, in characters."""

    columns: int
    rows: int


async def serve_shell(workspace: Workspace, socket: web.WebSocketResponse, query: dict[str, str]) -> None:
    """Carry a shell over a socket until one of them ends: bytes are the terminal's, texts are about it.

    Args:
        workspace: whose rights count.
        socket: of the page. It sends sizes as texts; it is told the exit code, or an error, as the last text.
        query: `job`, its key; `pod` or `rank` of it, else its primary pod is meant.
    """
    if workspace.shells >= SHELLS_MAX:
        await socket.send_json({"error": f"{SHELLS_MAX} shells are open already: close one"})
        return
    workspace.shells += 1
    try:
        program = await _start(workspace, query)
        try:
            await _carry(program, socket, workspace.over)
            await socket.send_json({"exit": program.exit_code})
        finally:
            await program.close()
    except GanglineError as error:
        hint = f" ({error.hint})" if error.hint else ""
        await socket.send_json({"error": f"{error.message}{hint}"})
    finally:
        workspace.shells -= 1


async def _start(workspace: Workspace, query: dict[str, str]) -> PodProgram:
    key, rank = query.get("job", ""), query.get("rank", "")
    found = workspace.scene.live.find(key)
    if found is None:
        raise UserError(f"there is no job {key}")
    number = int(rank) if rank.isdigit() else None
    pods = workspace.scene.live.pods_of(*found)
    pod = choose_pod(found[1], pods, instance=query.get("pod") or None, rank=number)
    words = _SHELL if number is None else beside_rank(number, _SHELL)
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    container = default_container(pod)
    return await PodProgram.run(
        workspace.client, name, namespace, words, container=container, stdin=True, tty=True
    )


async def _carry(program: PodProgram, socket: web.WebSocketResponse, over: asyncio.Event) -> None:
    """Carry until the program ends; a page that goes, and rights that end, end it."""
    reading = asyncio.create_task(_read(program, socket), name="page shell input")
    writing = asyncio.create_task(_write(program, socket), name="page shell output")
    ending = asyncio.create_task(over.wait(), name="page shell's end")
    done, rest = await asyncio.wait({reading, writing, ending}, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    for task in done:
        task.result()


async def _read(program: PodProgram, socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            await program.send(message.data)
        elif message.type is WSMsgType.TEXT:
            with suppress(msgspec.MsgspecError):
                size = msgspec.json.decode(message.data, type=Size)
                if 0 < size.columns <= SIDE_MAX and 0 < size.rows <= SIDE_MAX:
                    await program.resize(size.columns, size.rows)


async def _write(program: PodProgram, socket: web.WebSocketResponse) -> None:
    async for _, data in program.output():
        await socket.send_bytes(data)
