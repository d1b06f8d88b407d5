"""A program in a container of a pod of any cluster: its streams, its terminal and its exit code.

Source of the channels: k8s.io/apimachinery/pkg/util/remotecommand/constants.go.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from gangline.kube.errors import ServerError, error_from_body

if TYPE_CHECKING:
    from gangline.kube.client import Client
    from gangline.kube.pod_streams.web_socket import WebSocket

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
CLOSE_TIMEOUT_S = 5.0


class PodProgram:
    """A program that was started with ``run``.

    Attributes:
        exit_code: once ``output`` has ended; 128 and the signal's number for one that was killed.
    """

    def __init__(self, web_socket: WebSocket, protocol: str) -> None:
        self._web_socket = web_socket
        self._protocol = protocol
        self.exit_code = 0

    @classmethod
    async def run(
        cls,
        client: Client,
        pod: str,
        namespace: str | None,
        command: Sequence[str],
        *,
        container: str = "",
        stdin: bool = False,
        tty: bool = False,
    ) -> PodProgram:
        """Start a program in a running container.

        Raises:
            ApiError: the server refuses, or no such container runs.
        """
        params = {
            "command": list(command),
            "container": container,
            "stdin": stdin or None,
            "stdout": True,
            "stderr": None if tty else True,
            "tty": tty or None,
        }
        opened = await client.open_pod_stream(pod, "exec", namespace, params=params, protocols=(V5, V4))
        return cls(*opened)

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield what the program writes, by stream (1 or 2), until it has ended.

        Raises:
            ServerError: it could not be executed, or the connection has broken.
        """
        channel, status = -1, b""
        while (piece := await self._web_socket.receive()) is not None:
            data = piece.data
            if piece.begins:
                channel = data.pop(0) if data else -1
            if channel in (STDOUT, STDERR) and data:
                yield channel, bytes(data)
            elif channel == ERROR:
                status += data
        if not status:
            raise ServerError(0, "", "the connection to the program has broken")
        self.exit_code = exit_code_of(status)

    async def send(self, data: bytes) -> None:
        """Write to the program's input; waits while it does not read."""
        await self._web_socket.send(bytes((STDIN,)) + data)

    async def end_input(self) -> None:
        """Let the program find the end of its input; servers before Kubernetes 1.30 have no such thing."""
        if self._protocol == V5:
            await self._web_socket.send(bytes((CLOSE, STDIN)))

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the program's terminal."""
        size = json.dumps({"Width": columns, "Height": rows}).encode()
        await self._web_socket.send(bytes((RESIZE,)) + size)

    async def close(self) -> None:
        """Leave it: a program that still runs is ended by the server."""
        await self._web_socket.close(CLOSE_TIMEOUT_S)


def exit_code_of(status: bytes) -> int:
    """Return the exit code that a ``Status`` tells.

    Raises:
        ServerError: the program was not executed, or nobody knows how it ended.
    """
    try:
        found: dict[str, Any] = json.loads(status)
        if found.get("status") == "Success":
            return 0
        if found.get("reason") == "NonZeroExitCode":
            causes = found["details"]["causes"]
            return int(next(one["message"] for one in causes if one.get("reason") == "ExitCode"))
    except (ValueError, KeyError, TypeError, StopIteration):
        raise ServerError(0, "", f"no exit code in `{status[:200].decode(errors='replace')}`") from None
    raise error_from_body(0, status, doing="the program")
