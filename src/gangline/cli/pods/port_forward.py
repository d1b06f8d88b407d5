"""``gangline port-forward``: ports of a job's pod on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys

import click

from gangline.cli.pods.job_pod import open_pod, pod_options
from gangline.client.target import ClusterTarget
from gangline.errors import ClusterError, UserError

PORT_MAX = 65535


@click.command("port-forward")
@click.option("--address", default="127.0.0.1", metavar="ADDRESS", help="Listen there.  [default: 127.0.0.1]")
@pod_options
@click.argument("ports", nargs=-1, required=True, metavar="[HERE:]PORT...")
def command(
    name: str,
    ports: tuple[str, ...],
    address: str,
    rank: int | None,
    instance: str | None,
    kind: str,
    target: ClusterTarget,
) -> None:
    """Listen on this machine, and lead each connection to a port of the launcher's pod of job NAME.

    PORT alone is the same here and there, HERE:PORT takes another port here, :PORT any that is free.
    Ends with Ctrl-C.
    """
    pairs = [parse_ports(text) for text in ports]
    asyncio.run(_forward(target, name, kind, pairs, address, instance=instance, rank=rank))


def parse_ports(text: str) -> tuple[int, int]:
    """Return the port here and that of the pod; 0 here for any.

    Raises:
        UserError: they are none.

    Example:
        >>> parse_ports("8080:80"), parse_ports("80"), parse_ports(":80")
        ((8080, 80), (80, 80), (0, 80))
    """
    found = re.fullmatch(r"(?:([0-9]{0,5}):)?([0-9]{1,5})", text)
    if found:
        here, there = found.groups()
        pair = int(there if here is None else here or 0), int(there)
        if max(pair) <= PORT_MAX and pair[1]:
            return pair
    raise UserError(f"`{text}` names no ports", hint=f"write PORT, HERE:PORT or :PORT, up to {PORT_MAX}")


async def _forward(
    target: ClusterTarget,
    name: str,
    kind: str,
    pairs: list[tuple[int, int]],
    address: str,
    *,
    instance: str | None,
    rank: int | None,
) -> None:
    from gangline.kube.pod_streams.ports import forward

    async with (
        open_pod(target, name, kind, instance=instance, rank=rank) as pod,
        contextlib.AsyncExitStack() as stack,
    ):
        for here, there in pairs:

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: int = there
            ) -> None:
                if failure := await forward(pod.client, pod.name, pod.namespace, there, reader, writer):
                    print(f"port {there}: {failure}", file=sys.stderr, flush=True)

            try:
                server = await asyncio.start_server(serve, address, here)
            except OSError as error:
                raise ClusterError(f"cannot listen on {address}:{here}: {error.strerror}") from error
            await stack.enter_async_context(server)
            taken = server.sockets[0].getsockname()[1]
            print(f"{address}:{taken} leads to port {there} of pod {pod.name}", flush=True)
        await asyncio.Event().wait()
