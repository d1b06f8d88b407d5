"""The API server of the one-machine cluster: one store, its handlers, and the sockets they listen on.

Reading order: registry.py (what is served, what a path means), handlers.py (a request's way), then
reading.py, watching.py, writing.py, deleting.py, subresources.py, logs.py; shaping.py and what it calls are
the rules of kinds.

``python -m gangline.cluster.server.server`` runs one without controllers, for trying it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from gangline.api.budgets import BODY
from gangline.api.resources import Resource
from gangline.cluster.api_access import kubeconfig_text
from gangline.cluster.certificates import TOKEN_KEY_FILE, Certificates
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.private_files import write_private
from gangline.cluster.server import background
from gangline.cluster.server.bootstrap import bootstrap
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.auth import Authenticator
from gangline.cluster.server.http.connections import (
    LOCAL,
    REMOTE,
    ConnectionTable,
    Handle,
    HttpServer,
    Listener,
)
from gangline.cluster.server.http.fault_log import bound_library_logs
from gangline.cluster.server.http.handlers import Handlers
from gangline.cluster.server.memory import MemoryShares, bound_heap, free_bytes
from gangline.cluster.server.quota.quotas import Quotas
from gangline.cluster.server.rbac.authorizer import Authorizer
from gangline.cluster.server.registry import CRD_COLLECTION, Registry
from gangline.cluster.server.resources import STORED_KINDS
from gangline.cluster.server.store.store import Store
from gangline.errors import ClusterError

SHUTDOWN_TIMEOUT_S = 2.0
BACKLOG = 512
_IP_FREEBIND = 15


class ApiServer:
    """Serves one cluster's API until stopped.

    Args:
        paths: the cluster's files.
        port: TCP port on 127.0.0.1; 0 takes a free one.
        extra_addresses: further addresses to listen on with TLS; they need not exist yet.
    """

    def __init__(
        self, paths: ClusterPaths, *, port: int = 0, extra_addresses: list[str] | None = None
    ) -> None:
        self.paths = paths
        self.port = port
        self._extra_addresses = extra_addresses or []
        self._store: Store | None = None
        self.remote_connections = ConnectionTable(REMOTE)
        self._servers: list[HttpServer] = []
        self._listening: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def context(self) -> ApiContext:
        """The parts; there once started."""
        return self._context

    def on_kind_in_use(self, listener: Callable[[Resource], None]) -> None:
        """Call ``listener`` with every built-in kind that has had an object, now or later."""
        kinds = {f"{resource.group}/{resource.plural}": resource for resource in STORED_KINDS}

        def tell(collection: str) -> None:
            if collection in kinds:
                listener(kinds[collection])

        self._context.store.on_first(tell)

    async def start(self) -> None:
        """Open the store, make what is missing, listen.

        Raises:
            StoreInUseError: another server has the store.
            StoreError: the store cannot be opened.
            ClusterError: an address cannot be listened on.

        Cost: 50 ms with an empty store, 120 ms when certificates are made.
        """
        paths = self.paths
        bound_library_logs()
        for folder in (paths.state, paths.run):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        bound_heap()
        memory = MemoryShares.of(free_bytes())
        self._store = store = Store(paths.store, bytes_max=memory.store_bytes_max)
        try:
            certificates = Certificates(paths.certificates, [*self._extra_addresses, socket.gethostname()])
            certificates.ensure()
            registry = Registry()
            for entry in store.entries(CRD_COLLECTION):
                registry.put_crd(entry.obj)
            store.ring.listen(CRD_COLLECTION, registry.on_change)
            authenticator = Authenticator(paths.token, paths.certificates / TOKEN_KEY_FILE)
            self._context = api = ApiContext(
                paths, store, registry, authenticator, Authorizer(store), Quotas(store)
            )
            await bootstrap(api)
            self._listen(Handlers(api, memory), certificates.ssl_context())
            text = kubeconfig_text(paths.name, self.port, certificates.authority_pem, authenticator.token)
            write_private(paths.kubeconfig, text.encode())
        except BaseException:
            await self.stop()
            raise
        self._tasks = [
            asyncio.create_task(background.expire_events(api), name="expire-events"),
            asyncio.create_task(background.clean_up_crds(api), name="clean-up-crds"),
            asyncio.create_task(background.tell_quotas(api), name="tell-quotas"),
        ]

    def _listen(self, handlers: Handlers, context: ssl.SSLContext) -> None:
        main = tcp_socket("127.0.0.1", self.port)
        self.port = main.getsockname()[1]
        sockets = [main, *(tcp_socket(address, self.port) for address in self._extra_addresses)]
        self._serve(handlers.handle_remote, sockets, self.remote_connections, context)
        self._serve(
            handlers.handle_local, [_unix_socket(self.paths.api_socket)], ConnectionTable(LOCAL), None
        )

    def _serve(
        self,
        handle: Handle,
        sockets: list[socket.socket],
        table: ConnectionTable,
        context: ssl.SSLContext | None,
    ) -> None:
        server = HttpServer(handle, idle_timeout_s=table.limits.idle_timeout_s, body_bytes_max=BODY.bytes_max)
        self._servers.append(server)
        for sock in sockets:
            sock.setblocking(False)
            sock.listen(BACKLOG)
            listener = Listener(sock, server, table, context)
            self._listening.append(asyncio.create_task(listener.run(), name="listener"))

    async def stop(self) -> None:
        """End watches, answer what is under way, commit, let go of the store."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._store is not None:
            self._store.ring.close()
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        self._listening = []
        for server in self._servers:
            server.pre_shutdown()
            await server.shutdown(SHUTDOWN_TIMEOUT_S)
        self._servers = []
        if self._store is not None:
            await self._store.close()
            self._store = None
            with contextlib.suppress(FileNotFoundError):
                self.paths.api_socket.unlink()


def tcp_socket(address: str, port: int) -> socket.socket:
    """Return a bound socket; the address need not exist yet where the system allows that."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
        sock.bind((address, port))
    except OSError as error:
        sock.close()
        raise ClusterError(
            f"cannot listen on {address}:{port}: {error.strerror}",
            hint="another program has the port, or another cluster of this machine; choose another port",
        ) from error
    return sock


def _unix_socket(path: Path) -> socket.socket:
    """Return a bound socket that only its owner can open; one left by a killed server is replaced."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        raise ClusterError(f"cannot listen on {path}: {error.strerror}") from error
    finally:
        os.umask(mask)
    return sock


async def serve_forever(paths: ClusterPaths, port: int) -> None:
    """Serve until told to end (SIGINT, SIGTERM)."""
    server = ApiServer(paths, port=port)
    await server.start()
    end = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end.set)
    try:
        await end.wait()
    finally:
        await server.stop()


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="Run the API server alone.")
    parser.add_argument("--state", type=Path, required=True, help="state folder")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    asyncio.run(serve_forever(ClusterPaths("dev", arguments.state.absolute()), arguments.port))
