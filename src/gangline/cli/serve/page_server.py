"""``gangline page-server``: the page in a cluster, where each user signs in with a token of the cluster."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from gangline.cli.serve.service import connection_options
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.kube.config import Connection
    from gangline.page.rooms import Visitor
    from gangline.page.sessions import Workspace

_HOST = re.compile(r"[a-z0-9.-]+|\[[0-9a-f:]+\]")
"""``gangline.example.com``, ``10.0.0.7``, ``[fd00::7]``"""
_ACCOUNT = "system:serviceaccount:"


@click.command("page-server")
@connection_options()
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers ask for it, without port; may be repeated.  [default: loopback alone]",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Where it listens."
)
@click.option(
    "--listen",
    default="127.0.0.1",
    metavar="ADDRESS",
    show_default=True,
    help="On which address; 0.0.0.0 in a pod.",
)
def command(
    kubeconfig: Path | None, context: str | None, hosts: tuple[str, ...], port: int, listen: str
) -> None:
    """Serve the page to everybody who has a token of the cluster, each with the rights of that.

    It has no rights of its own: of the kubeconfig, or the pod, it takes the server's address and
    certificate alone. A token comes from the page's form, or from a proxy as `Authorization: Bearer`.
    """
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise UserError(
                f"--host {host}: that is no name of a host",
                hint="without scheme and port, in small letters: --host gangline.example.com",
            )
    server = read_server(kubeconfig, context)
    from gangline.cli.serve.cluster import run_until_stopped

    asyncio.run(run_until_stopped(_serve(server, frozenset(hosts), port, listen)))


def read_server(kubeconfig: Path | None, context: str | None) -> Connection:
    """Return the server to talk to, as nobody."""
    from gangline.kube.config import Connection, in_cluster, load_kubeconfig

    if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(with_account=False)
    found = load_kubeconfig(kubeconfig, context)
    return Connection(
        server=found.server,
        ca_data=found.ca_data,
        insecure=found.insecure,
        proxy_url=found.proxy_url,
        tls_server_name=found.tls_server_name,
    )


async def _serve(server: Connection, hosts: frozenset[str], port: int, listen: str) -> None:
    import structlog

    from gangline.page.guard import Guard
    from gangline.page.rooms import Rooms
    from gangline.page.server import PageServer
    from gangline.page.sign_in_entrance import SignInEntrance

    entrance = SignInEntrance(Rooms(lambda visitor: open_workspace(server, visitor)))
    page = PageServer(entrance, Guard(hosts, any_port=True))
    try:
        listening = await page.start(port, listen)
        structlog.get_logger().info("page serves", port=listening, cluster=server.server)
        await asyncio.Event().wait()
    finally:
        await page.stop()


@asynccontextmanager
async def open_workspace(server: Connection, visitor: Visitor) -> AsyncIterator[Workspace]:
    """Open what a token sees; the cluster is asked first whose it is."""
    from gangline.cli.serve.page_workspace import make_workspace
    from gangline.client.target import ClusterTarget
    from gangline.kube.client import Client
    from gangline.page.rooms import user_of

    connection = replace(server, token=visitor.token)
    async with Client(connection, user_agent="gangline-page") as asking:
        user = await user_of(asking)
    own = user.removeprefix(_ACCOUNT).partition(":")[0] if user.startswith(_ACCOUNT) else ""
    connection = replace(connection, namespace=visitor.namespace or own or "default")
    async with Client(connection, user_agent="gangline-page") as client:
        yield make_workspace(ClusterTarget(given=connection), client, has_files=False, user=user)
