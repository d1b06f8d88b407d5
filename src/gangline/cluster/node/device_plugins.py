"""Device plugins in pods of this agent's nodes: what they advertise, and what pods get of it.

Each node has a folder of its own, which pods see that mount the kubelet's (``PLUGIN_FOLDER``). GPUs that the
agent found itself stay in its books (``AgentGpus``): of those a plugin is asked to allocate the ids that the
agent has chosen. Devices of any other resource are counted and handed out here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import Container, Pod
from gangline.api.volumes import HostPathVolume
from gangline.cluster.node.plugin_kubelet import PluginKubelet
from gangline.devices.inventory import NODE_FILE, PLUGIN_FOLDER, RESOURCE, DeviceInventory
from gangline.errors import ClusterError
from gangline.units import quantity_ceil

_WHOLE_MACHINE = ("mem", "kmem", "port")
RESTART_S = 1.0
"""After which the program that plugins register with is started again when it has ended by itself."""


class DeviceGrant(msgspec.Struct, frozen=True):
    """What plugins gave one container.

    Attributes:
        devices: ids by resource, of those that are counted here.
        variables: of its environment.
        mounts: path in the container, folder or file of the machine, whether read-only.
        files: device files of the machine.
    """

    devices: dict[str, tuple[str, ...]] = {}
    variables: dict[str, str] = {}
    mounts: tuple[tuple[str, str, bool], ...] = ()
    files: tuple[str, ...] = ()


class DevicesTakenError(Exception):
    """Too few devices of a resource are free just now."""


class AllocateError(Exception):
    """A plugin refuses what a pod asks for; a kubelet fails such a pod for good."""


class DevicePlugins:
    """See the module's text.

    Args:
        run: the cluster's folder of sockets.
        gpus: the GPUs that the agent found for a node.
        log: structlog's.
        private: folders that no pod may see.
    """

    def __init__(
        self, run: Path, gpus: Callable[[str], DeviceInventory], log: Any, private: Iterable[str] = ()
    ) -> None:
        self._private = tuple(private)
        self.root = run / "plugins"
        self._gpus = gpus
        self._log = log
        self._pods: dict[str, str] = {}
        """Uid of each pod with a plugin -> its node."""
        self._shown: dict[str, DeviceInventory] = {}
        self._devices = self._read_known()
        self._holders: dict[tuple[str, str, str], str] = {}
        self._kubelet = PluginKubelet(self._on_told, self._on_ended)
        self._opening, self._allocating = asyncio.Lock(), asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_change: Callable[[str], None] = lambda node: None

    # Plugins

    def host_path(self, source: HostPathVolume, node: str) -> HostPathVolume:
        """Return what a host path of a pod shows: for the kubelet's folder that of the pod's own node."""
        if source.path.rstrip("/") != PLUGIN_FOLDER:
            return source
        folder = self.root / node
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        return HostPathVolume(path=str(folder), type="Directory")

    def is_own(self, path: str) -> bool:
        """Return whether a host path is a folder of sockets that pods may mount."""
        return Path(path).parent == self.root

    async def serve(self, uid: str, paths: Iterable[str]) -> None:
        """Have the plugin of a pod register, if one of these is the folder for it.

        Raises:
            ClusterError: no plugin can register.
        """
        for node in (Path(path).name for path in paths if self.is_own(path)):
            async with self._opening:
                is_first = node not in self._pods.values()
                self._pods[uid] = node
                try:
                    if is_first:
                        await self._open(node)
                except BaseException:
                    del self._pods[uid]
                    raise

    async def _open(self, node: str) -> None:
        self.refresh(node)
        await self._kubelet.start()
        await self._kubelet.ask(do="serve", folder=str(self.root / node))

    def refresh(self, node: str) -> None:
        """Tell a node's plugin which GPUs the node has now."""
        if node not in self._pods.values() or (found := self._gpus(node)) == self._shown.get(node):
            return
        self._shown[node] = found
        draft = self.root / f"{node}.new"
        draft.write_bytes(msgspec.json.encode(found))
        draft.replace(self.root / node / NODE_FILE)

    async def release(self, uid: str) -> None:
        """Free what a pod holds; without a plugin left on its node what one advertised there is gone."""
        self._holders = {key: holder for key, holder in self._holders.items() if holder != uid}
        async with self._opening:
            node = self._pods.pop(uid, None)
            if node is None or node in self._pods.values():
                return
            if not self._pods:
                await self._kubelet.stop()
            else:
                with contextlib.suppress(ClusterError):
                    await self._kubelet.ask(do="close", folder=str(self.root / node))
        self._shown.pop(node, None)
        self._devices.pop(node, None)
        self._known(node).unlink(missing_ok=True)
        self.on_change(node)

    async def close(self) -> None:
        """End the program; what pods hold, the next agent reads in their records."""
        for task in self._tasks:
            task.cancel()
        await self._kubelet.stop()

    def _known(self, node: str) -> Path:
        """Return the file with the names of what a node advertises, for the next agent."""
        return self.root / f"{node}.resources"

    def _read_known(self) -> dict[str, dict[str, dict[str, bool]]]:
        """Return what nodes advertised to an agent before this one, none to be had until plugins register.

        A pod that asks for it meanwhile waits; without this it would run without a device.
        """
        return {
            path.stem: {name: {} for name in path.read_text().split()}
            for path in self.root.glob("*.resources")
        }

    def _on_told(self, folder: str, resource: str, devices: dict[str, bool] | None) -> None:
        node = Path(folder).name
        known = self._devices.setdefault(node, {})
        if devices is None:  # the plugin is gone: what it advertised is there, and not to be had
            devices = dict.fromkeys(known.get(resource, ()), False)
        self._log.info("device plugin", node=node, resource=resource, healthy=sum(devices.values()))
        is_news, known[resource] = resource not in known, devices
        if is_news:
            self._known(node).write_text("\n".join(sorted(known)))
        self.on_change(node)

    def _on_ended(self) -> None:
        self._log.warning("the program that device plugins register with has ended; starting it again")
        task = asyncio.create_task(self._reopen())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reopen(self) -> None:
        await asyncio.sleep(RESTART_S)
        for node in sorted(set(self._pods.values())):
            try:
                await self._open(node)
            except (ClusterError, OSError) as error:
                self._log.warning("device plugins cannot register", node=node, error=str(error))

    # What a node offers

    def _own(self, node: str) -> dict[str, dict[str, bool]]:
        """Return the resources of a node that are counted here."""
        found = self._devices.get(node, {})
        return {name: ids for name, ids in found.items() if name != RESOURCE or not self._gpus(node).gpus}

    def amounts(self, node: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return what plugins add to a node's capacity, and to what can be had."""
        own = self._own(node)
        capacity = {name: str(len(devices)) for name, devices in own.items()}
        return capacity, {name: str(sum(devices.values())) for name, devices in own.items()}

    def has_gpus(self, node: str) -> bool:
        """Return whether a plugin's GPUs are counted here, for the agent found none."""
        return RESOURCE in self._own(node)

    # What pods get

    def reserve(self, uid: str, node: str, grants: Mapping[str, DeviceGrant]) -> None:
        """Note what a running pod holds, as an agent before this one gave it."""
        for grant in grants.values():
            self._hold(uid, node, grant.devices)

    def _hold(self, uid: str, node: str, devices: Mapping[str, Iterable[str]]) -> None:
        self._holders |= {(node, name, one): uid for name, ids in devices.items() for one in ids}

    async def take(self, pod: Pod, gpus: Mapping[str, tuple[str, ...]]) -> dict[str, DeviceGrant]:
        """Have plugins allocate what the containers of a pod ask for.

        Args:
            pod: the pod.
            gpus: container -> ids of the GPUs that the agent has chosen for it.

        Raises:
            DevicesTakenError: others hold too many.
            AllocateError: a plugin refuses.
        """
        async with self._allocating:  # between choosing and holding nobody else chooses
            return await self._take(pod, gpus)

    async def _take(self, pod: Pod, gpus: Mapping[str, tuple[str, ...]]) -> dict[str, DeviceGrant]:
        node, uid = pod.spec.node_name, pod.metadata.uid
        grants: dict[str, DeviceGrant] = {}
        reusable: dict[str, list[str]] = {}
        try:
            for container in pod.spec.init_containers:
                grants[container.name] = await self._grant(pod, container, gpus, reusable)
                if container.restart_policy != "Always":
                    for name, ids in grants[container.name].devices.items():
                        reusable[name] = list(dict.fromkeys([*reusable.get(name, ()), *ids]))
            for container in pod.spec.containers:
                grants[container.name] = await self._grant(pod, container, gpus, reusable)
                for name, ids in grants[container.name].devices.items():
                    reusable[name] = [one for one in reusable.get(name, ()) if one not in ids]
        except BaseException:
            self._holders = {key: holder for key, holder in self._holders.items() if holder != uid}
            raise
        self.reserve(uid, node, grants)
        return {name: grant for name, grant in grants.items() if grant != DeviceGrant()}

    async def _grant(
        self,
        pod: Pod,
        container: Container,
        gpus: Mapping[str, tuple[str, ...]],
        reusable: Mapping[str, list[str]],
    ) -> DeviceGrant:
        node, uid = pod.spec.node_name, pod.metadata.uid
        own, total = self._own(node), DeviceGrant()
        for name, amount in container.resources.limits.items():
            if name in own:
                count, included = quantity_ceil(str(amount)), reusable.get(name, [])
                free = [one for one, healthy in own[name].items() if healthy]
                free = [one for one in free if (node, name, one) not in self._holders]
                available = list(dict.fromkeys([*included, *free]))
                if len(available) < count:
                    raise DevicesTakenError(f"waits for {count} {name} of {node}: {len(available)} are free")
            elif name == RESOURCE and name in self._devices.get(node, {}) and gpus.get(container.name):
                available = included = list(gpus[container.name])
                count = len(available)
            else:
                continue
            if count:
                given = await self._allocate(node, name, available, included[:count], count)
                self._hold(uid, node, given.devices)
                total = _together(total, given if name in own else msgspec.structs.replace(given, devices={}))
        return total

    async def _allocate(
        self, node: str, resource: str, available: list[str], included: list[str], count: int
    ) -> DeviceGrant:
        folder = str(self.root / node)
        try:
            answer = await self._kubelet.ask(
                do="allocate",
                folder=folder,
                resource=resource,
                available=available,
                included=included,
                count=count,
            )
        except ClusterError as error:
            raise AllocateError(f"Allocate failed due to {error.message}, which is unexpected") from error
        if refusal := refusal_of(answer, self._private):
            raise AllocateError(f"the device plugin of {resource} gives {refusal}")
        return DeviceGrant(
            {resource: tuple(answer["devices"])},
            dict(answer["variables"]),
            tuple((where, host, bool(read_only)) for where, host, read_only in answer["mounts"]),
            tuple(host for _, host in answer["files"]),
        )


def _together(one: DeviceGrant, other: DeviceGrant) -> DeviceGrant:
    return DeviceGrant(
        one.devices | other.devices,
        one.variables | other.variables,
        (*one.mounts, *other.mounts),
        tuple(dict.fromkeys((*one.files, *other.files))),
    )


def refusal_of(answer: Mapping[str, Any], private: Iterable[str] = ()) -> str:
    """Return what of a plugin's answer no container is given, and why; empty if all can be.

    A pod with a plugin is a pod as any other: it must not lead others to what volumes may not show, nor to
    disks and memory of the machine.
    """
    for name in answer["cdi"]:
        return f"{name}, and CDI devices are not served here"
    for inside, host in answer["files"]:
        file = Path(host).resolve()
        if inside != host or file.parts[:2] != ("/", "dev"):
            return f"{host} as {inside}, and a device file keeps its name below /dev here"
        if file.name in _WHOLE_MACHINE or (file.exists() and not file.is_char_device()):
            return f"{host}, and no container is given disks, memory or ports of the machine"
    for _, host, _ in answer["mounts"]:
        shown = Path(host).resolve()
        if not shown.exists():
            return f"{host}, which does not exist on this machine"
        if any(shown.is_relative_to(one) or Path(one).is_relative_to(shown) for one in private):
            return f"{host}, where the files of a cluster are, which no pod may mount"
    return ""
