"""Where the pods of the one-machine cluster tell how far their training is: addresses, port, certificate."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from gangline.api.training.job import StatusEndpoint
from gangline.cluster.certificates import Certificates
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.server import tcp_socket
from gangline.errors import ClusterError
from gangline.kube.http_paths import serve_posts
from gangline.kube.verbs import ObjectClient
from gangline.operator.trainer_status import TrainerStatusDesk

LOOPBACK = "127.0.0.1"


class StatusListener:
    """Bound on construction, so that pods can be told where; answers once it runs.

    Args:
        paths: of the cluster, whose certificate is used and whose port is kept over restarts.
        addresses: of the bridge, which need not exist yet.
    """

    def __init__(self, paths: ClusterPaths, addresses: list[str]) -> None:
        self._certificates = Certificates(paths.certificates, [*addresses, socket.gethostname()])
        first, *others = [LOOPBACK, *addresses]
        main = _bound(first, paths)
        port = main.getsockname()[1]
        self._sockets = [main, *(tcp_socket(address, port) for address in others)]
        # Pods of every kind of isolation reach the bridge's address, where there is one.
        host = next(iter(addresses), LOOPBACK)
        self.endpoint = StatusEndpoint(
            url=f"https://{host}:{port}", authority=self._certificates.authority_pem.decode()
        )

    async def run(self, client: ObjectClient) -> None:
        """Answer until cancelled."""
        desk = TrainerStatusDesk(client)
        async with serve_posts(self._sockets, self._certificates.ssl_context(), desk.take):
            await asyncio.Event().wait()


def _bound(address: str, paths: ClusterPaths) -> socket.socket:
    """Return a socket on the port of last time; on another where that is taken."""
    file = paths.state / "trainer-status-port"
    with suppress(OSError, ValueError, ClusterError):
        return tcp_socket(address, int(file.read_text()))
    sock = tcp_socket(address, 0)
    file.write_text(str(sock.getsockname()[1]))
    return sock
