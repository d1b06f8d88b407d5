"""Kubernetes' own control plane as the API of the one-machine cluster: its programs kept alive, pods reached.

etcd, kube-apiserver and kube-controller-manager are children of this process, which the kernel ends with it.
The API server asks the kubelet endpoint here for logs and streams of pods.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from importlib import import_module, resources
from typing import TYPE_CHECKING

import structlog
import yaml

from gangline.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SERVICES, STORAGE_CLASSES
from gangline.cli.serve.control_plane import Objects, RunServices, Work
from gangline.cluster import control_plane
from gangline.cluster.api_access import api_connection
from gangline.cluster.control_plane import identities
from gangline.cluster.control_plane.commands import PlaneFiles, command_lines
from gangline.cluster.control_plane.programs import API_SERVER, CONTROLLERS, ETCD, find_programs
from gangline.cluster.control_plane.relay import relay
from gangline.cluster.daemon.api_service import api_service
from gangline.cluster.daemon.cluster_facts import ClusterFacts
from gangline.cluster.daemon.daemon import log_tail
from gangline.cluster.daemon.restarts import RestartDelay, note_restart
from gangline.cluster.node.shim.syscalls import die_with_parent
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.bootstrap import STORAGE_CLASS
from gangline.cluster.server.kubelet import KubeletEndpoint
from gangline.cluster.server.server import tcp_socket
from gangline.errors import ClusterError
from gangline.installation.objects import rights
from gangline.kube.client import Client

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gangline.cluster.runs.bounds import Bounds
    from gangline.kube.http_paths import PathAnswer
    from gangline.kube.verbs import ObjectClient

STOP_TIMEOUT_S = 5.0
START_TIMEOUT_S = 90.0
POLL_S = 0.02
LOG_BYTES_MAX = 16 << 20
"""A program's log that is longer when it is started is put aside."""


class _Program:
    """One program, started again whenever it ends."""

    def __init__(self, paths: ClusterPaths, name: str, argv: list[str]) -> None:
        self._paths, self.name, self._argv = paths, name, argv
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        log = self._paths.log(self.name)
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".old"))
        with log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._paths.state,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL),
            )

    def check(self) -> None:
        """Raise when it has ended.

        Raises:
            ClusterError: with the end of its log.
        """
        if self._process is not None and self._process.returncode is not None:
            tail = "\n".join(f"  {line[:300]}" for line in log_tail(self._paths.log(self.name), 5))
            raise ClusterError(
                f"{self.name} ended with code {self._process.returncode} while starting:\n{tail}",
                hint=f"its log is {self._paths.log(self.name)}",
            )

    async def keep(self) -> None:
        delay = RestartDelay()
        while self._process is not None:
            started = time.monotonic()
            code, pid = await self._process.wait(), self._process.pid
            why = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            structlog.get_logger().warning(f"{self.name} {why}; started again", pid=pid)
            await asyncio.sleep(delay.after(time.monotonic() - started))
            note_restart(self._paths, self.name, pid, why)
            await self.start()

    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def stop(self) -> None:
        process = self._process
        if process is None:
            return
        for end in (process.terminate, process.kill):
            with suppress(ProcessLookupError):
                end()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await process.wait()
                return


class KubernetesPlane:
    """See ``control_plane.ControlPlane``."""

    def __init__(self, paths: ClusterPaths, facts: ClusterFacts, addresses: list[str]) -> None:
        self._paths, self._facts, self._addresses = paths, facts, addresses
        self._programs: dict[str, _Program] = {}
        self._kubelet: KubeletEndpoint | None = None

    async def prepare(self) -> None:
        """Start etcd, which needs none of them, and write certificates and kubeconfigs."""
        paths, port = self._paths, self._facts.port
        files = PlaneFiles(paths.certificates, paths.state / "etcd", paths.run)
        lines = command_lines(files, port, next(iter(self._addresses), "127.0.0.1"))
        found = find_programs()
        self._programs = {
            name: _Program(paths, name, [str(found[name]), *line]) for name, line in lines.items()
        }
        await self._programs[ETCD].start()
        if identities.write_identities(paths, port, self._addresses, make=False):
            return
        words = (paths.name, str(port), *self._addresses)
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", identities.__name__, *words)
        if code := await process.wait():
            raise ClusterError(
                f"cannot write the certificates of cluster `{paths.name}` (code {code})",
                hint=f"the log above says why: {paths.log('server')}",
            )

    async def start(self) -> None:
        """Start the API server, which waits for etcd by itself, and wait until it answers."""
        await self._programs[API_SERVER].start()
        self._services = asyncio.create_task(asyncio.to_thread(import_module, "gangline.cli.serve.services"))
        async with Client(api_connection(self._paths), user_agent="gangline-server") as client:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await client.is_ready():
                    for program in self._programs.values():
                        program.check()
                    await asyncio.sleep(POLL_S)
        self._kubelet = KubeletEndpoint(self._paths, self._facts.kubelet_port, self._addresses)

    def first_objects(self, address: str) -> Objects:
        """Return roles, the class of volumes, and where the API server is found in pods' network."""
        kinds = {one.kind: one for one in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)}
        role = {"apiVersion": CLUSTER_ROLES.api_version, "kind": CLUSTER_ROLES.kind}
        for part in ("operator", "scheduler"):
            yield CLUSTER_ROLES, {**role, "metadata": {"name": f"gangline:{part}"}, "rules": rights()[part]}
        for obj in yaml.safe_load_all((resources.files(control_plane) / "roles.yaml").read_text()):
            yield kinds[obj["kind"]], obj
        kind = {"apiVersion": STORAGE_CLASSES.api_version, "kind": STORAGE_CLASSES.kind}
        yield STORAGE_CLASSES, {**kind, **STORAGE_CLASS}
        for resource, obj in api_service(address, self._facts.port):
            if resource is not SERVICES:  # which the API server makes itself
                yield resource, obj

    async def import_services(self) -> RunServices:
        """Return them when the import has ended that went on meanwhile."""
        run: RunServices = (await self._services).run_services
        return run

    def controllers(self, client: ObjectClient, bounds: Bounds) -> Work:
        """Return those that kube-controller-manager does not have."""
        from gangline.cluster.controllers.all import run_machine_controllers
        from gangline.cluster.runs.history import History

        return run_machine_controllers(client, History(self._paths), bounds, self._paths.volumes)

    def show(self, path: str, answer: Callable[[], Awaitable[PathAnswer]]) -> None:
        """Answer it at the nodes' port: what kube-apiserver answers is its own."""
        assert self._kubelet is not None
        self._kubelet.pages[path] = answer

    def figures(self) -> Iterable[tuple[str, Iterable[Metric]]]:
        """Return what the programs use; what they count is at their own addresses."""
        from prometheus_client import ProcessCollector

        for program in self._programs.values():
            yield program.name, ProcessCollector(pid=program.pid, registry=None).collect()

    async def keep(self) -> None:
        """Start the controllers, which learn late of kinds that are defined later, and again what ends."""
        assert self._kubelet is not None
        await self._programs[CONTROLLERS].start()
        async with asyncio.TaskGroup() as tasks:
            for program in self._programs.values():
                tasks.create_task(program.keep(), name=program.name)
            tasks.create_task(self._kubelet.run(), name="kubelet endpoint")
            for address in self._addresses:
                carried = relay(tcp_socket(address, self._facts.port), self._facts.port)
                tasks.create_task(carried, name="relay")

    async def stop(self) -> None:
        """End them, who writes last."""
        for name in (CONTROLLERS, API_SERVER, ETCD):
            if name in self._programs:
                await self._programs[name].stop()
