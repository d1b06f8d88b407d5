"""The API server of the one-machine cluster: one store, its handlers, and the sockets they listen on.

Reading order: registry.py (what is served, what a path means), handlers.py (a request's way), then
reading.py, watching.py, writing.py, deleting.py, subresources.py, logs.py; shaping.py and what it calls are
the rules of kinds.

``python -m gangline.local.apiserver.server`` runs one without controllers, for trying it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from gangline.errors import ClusterError
from gangline.local.account_tokens import KEY_FILE
from gangline.local.apiserver import background
from gangline.local.apiserver.auth import Authenticator, write_private
from gangline.local.apiserver.bootstrap import bootstrap
from gangline.local.apiserver.certificates import Certificates
from gangline.local.apiserver.context import ApiContext
from gangline.local.apiserver.exchange import BODY_BYTES_MAX
from gangline.local.apiserver.handlers import Handlers
from gangline.local.apiserver.kubeconfig import kubeconfig_text
from gangline.local.apiserver.registry import CRD_COLLECTION, Registry
from gangline.local.paths import ClusterPaths
from gangline.local.store import Store

SHUTDOWN_TIMEOUT_S = 2.0
KEEPALIVE_TIMEOUT_S = 3600.0
BACKLOG = 512
_IP_FREEBIND = 15

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


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
        self._runners: list[web.ServerRunner] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def context(self) -> ApiContext:
        """The parts; there once started."""
        return self._context

    async def start(self) -> None:
        """Open the store, make what is missing, listen.

        Raises:
            StoreInUseError: another server has the store.
            StoreError: the store cannot be opened.
            ClusterError: an address cannot be listened on.

        Cost: 50 ms with an empty store, 120 ms when certificates are made.
        """
        paths = self.paths
        for folder in (paths.state, paths.run):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._store = store = Store(paths.store)
        try:
            certificates = Certificates(paths.certificates, [*self._extra_addresses, socket.gethostname()])
            certificates.ensure()
            registry = Registry()
            for entry in store.entries(CRD_COLLECTION):
                registry.put_crd(entry.obj)
            store.ring.listen(CRD_COLLECTION, registry.on_change)
            authenticator = Authenticator(paths.token, paths.certificates / KEY_FILE)
            self._context = api = ApiContext(paths, store, registry, authenticator)
            await bootstrap(api)
            await self._listen(Handlers(api), certificates.ssl_context())
            text = kubeconfig_text(paths.name, self.port, certificates.authority_pem, authenticator.token)
            write_private(paths.kubeconfig, text.encode())
        except BaseException:
            await self.stop()
            raise
        self._tasks = [
            asyncio.create_task(background.expire_events(api), name="expire-events"),
            asyncio.create_task(background.clean_up_crds(api), name="clean-up-crds"),
        ]

    async def _listen(self, handlers: Handlers, context: ssl.SSLContext) -> None:
        main = _tcp_socket("127.0.0.1", self.port)
        self.port = main.getsockname()[1]
        await self._serve(handlers.handle_remote, main, context)
        for address in self._extra_addresses:
            await self._serve(handlers.handle_remote, _tcp_socket(address, self.port), context)
        await self._serve(handlers.handle_local, _unix_socket(self.paths.api_socket), None)

    async def _serve(self, handle: Handle, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        server = web.Server(
            handle,
            request_factory=_make_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEPALIVE_TIMEOUT_S,
        )
        runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await runner.setup()
        self._runners.append(runner)
        await web.SockSite(runner, sock, ssl_context=context, backlog=BACKLOG).start()

    async def stop(self) -> None:
        """End watches, answer what is under way, commit, let go of the store."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._store is not None:
            self._store.ring.close()
        for runner in self._runners:
            await runner.cleanup()
        self._runners = []
        if self._store is not None:
            await self._store.close()
            self._store = None
            with contextlib.suppress(FileNotFoundError):
                self.paths.api_socket.unlink()


def _make_request(message, payload, protocol, writer, task):  # type: ignore[no-untyped-def]
    """Return aiohttp's request with our limit of the body."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_BYTES_MAX)


def _tcp_socket(address: str, port: int) -> socket.socket:
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
