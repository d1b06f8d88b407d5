"""This command's standard streams and terminal, carried to and from a program in a pod."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangline.kube.pod_streams.program import PodProgram

_READ_BYTES = 64 << 10


async def carry(program: PodProgram, *, has_input: bool, tty: bool) -> int:
    """Carry the streams until the program ends; return its exit code."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def resize() -> None:
        size = shutil.get_terminal_size()
        task = loop.create_task(program.resize(size.columns, size.lines))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    try:
        with _raw_terminal() if tty else contextlib.nullcontext():
            if tty:
                resize()
                loop.add_signal_handler(signal.SIGWINCH, resize)
            if has_input:
                threading.Thread(target=_read_input, args=(program, loop), daemon=True).start()
            async for stream, data in program.output():
                target = sys.stdout.buffer if stream == 1 else sys.stderr.buffer
                target.write(data)
                target.flush()
        return program.exit_code
    finally:
        for task in tasks:
            task.cancel()
        await program.close()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Have every key go to the program, Ctrl-C too."""
    import termios
    import tty

    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _read_input(program: PodProgram, loop: asyncio.AbstractEventLoop) -> None:
    """Send standard input, in a thread that waits for it; one piece at a time, so that nothing piles up."""
    with contextlib.suppress(OSError, RuntimeError, concurrent.futures.CancelledError):  # the loop has ended
        while data := os.read(0, _READ_BYTES):
            asyncio.run_coroutine_threadsafe(program.send(data), loop).result()
        asyncio.run_coroutine_threadsafe(program.end_input(), loop).result()
