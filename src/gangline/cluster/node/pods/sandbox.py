"""One pod's place on the machine: shim, namespaces, address, names, volumes; made, adopted, taken down."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import Container, Pod
from gangline.cluster.images.image import Image
from gangline.cluster.node.context import AgentContext
from gangline.cluster.node.device_plugins import DeviceGrant
from gangline.cluster.node.network.egress.resolv_conf import (
    parse_resolv_conf,
    render_resolv_conf,
    with_dns_config,
)
from gangline.cluster.node.network.pod_network import INTERFACE_IN_POD
from gangline.cluster.node.pods.container_plan import COVER, PodFolders, uts_name
from gangline.cluster.node.pods.control_groups import (
    group_name,
    hold_limits,
    remove_cgroups,
    was_out_of_memory,
)
from gangline.cluster.node.pods.oci_containers import delete_containers, describe
from gangline.cluster.node.pods.pod_record import PodRecord
from gangline.cluster.node.pods.volumes import (
    MountError,
    VolumePlan,
    check_host_path,
    plan_volume,
    write_projection,
)
from gangline.cluster.node.run_rights import right_variables
from gangline.cluster.node.sessions import kind_of_session, on_machines_network
from gangline.cluster.node.shim_client import ForkServer, ShimConnection, ShimError
from gangline.cluster.user_session import MACHINE, NODE, UserSession
from gangline.devices.ledger import GpuRequest
from gangline.errors import ClusterError

END_TIMEOUT_S = 15.0
SET_GROUP = 0o2070
"""The group of a pod's fsGroup may write in its volumes, and owns what is made there."""


class Sandbox:
    """The place of one pod. ``shim`` is None before ``make`` or ``adopt`` and after the shim has died."""

    def __init__(self, context: AgentContext, record: PodRecord) -> None:
        self.context = context
        self.record = record
        self.folder = context.paths.pods / record.uid
        self.shim: ShimConnection | None = None
        self.volumes: dict[str, Path] = {}

    @property
    def fork_server(self) -> ForkServer:
        """The process that forks the pod's shim: one that entered no namespace for the user's own rights."""
        return self.context.fork_server if self.record.session != MACHINE else self.context.own_fork_server

    def _has_own_network(self, pod: Pod) -> bool:
        return self.context.network is not None and not on_machines_network(pod)

    def place(
        self,
        container: str = "",
        session: UserSession | None = None,
    ) -> PodFolders:
        """Return where the pod's things lie, for container plans.

        Args:
            container: which of the pod's.
            session: in which it runs.
        """
        context, record = self.context, self.record
        scope = record.host.scope
        return PodFolders(
            isolation=context.isolation,
            cluster_id=context.cluster_id,
            folder=self.folder,
            logs=context.paths.pod_logs(record.namespace, record.name, record.uid),
            bin=context.bin,
            names=context.names.folder(scope),
            hosts=self._own_file("hosts") or context.names.hosts_file(scope),
            resolv=self._own_file("resolv.conf") or context.resolv_of(record.address),
            api_host=context.api_host,
            api_port=context.api_port,
            hide=context.hide,
            private=context.private,
            host_mounts=context.host_mounts(),
            start_folders=context.start_folders,
            gpus=self._device_variables(container),
            given=record.grants.get(container, DeviceGrant()).mounts,
            rights=right_variables(context.paths),
            session=session,
            session_kind=record.session,
        )

    def _own_file(self, name: str) -> Path | None:
        """Return a file that the pod has of its own where others share one, None if it has none."""
        path = self.folder / name
        return path if path.exists() else None

    def take_gpus(self, pod: Pod) -> bool:
        """Take the pod's GPUs, all or none, and keep them until ``remove``; True when it got some now.

        Raises:
            GpusTakenError: it has to wait for others to end.
            GpuChoiceError: what it asks for can never be given.
        """
        if self.context.plugins.has_gpus(pod.spec.node_name):
            return False  # the plugin's, not ours
        shares = self.context.gpus.take(GpuRequest.of(pod))
        is_news = shares != self.record.gpus
        self.record = msgspec.structs.replace(self.record, gpus=shares)
        return is_news

    async def take_devices(self, pod: Pod) -> None:
        """Have device plugins give what the pod asks for, until ``remove``; see ``DevicePlugins.take``."""
        if not self.record.grants:
            grants = await self.context.plugins.take(pod, self.record.gpus)
            self.record = msgspec.structs.replace(self.record, grants=grants)

    def _device_variables(self, container: str) -> dict[str, str]:
        """Return the variables that name a container's devices, or say that it has no GPU."""
        return self._gpu_variables(container) | self.record.grants.get(container, DeviceGrant()).variables

    def _gpu_variables(self, container: str) -> dict[str, str]:
        own_files = self.context.isolation != "plain" and not self.record.session
        if self.record.session and not self.record.gpus:
            return {}  # what the user's own variables say
        return self.context.gpus.variables(self.record.gpus, container, sees_own_files=own_files)

    @property
    def _oci_state(self) -> Path:
        return self.context.paths.run / "oci"

    def describe_oci(self, spec: dict[str, Any], container: Container, image: Image) -> None:
        """Add to what the shim is to start how an OCI runtime runs it, if the image needs one."""
        uid, cluster_id = self.record.uid, self.context.cluster_id
        describe(spec, container, image, uid=uid, cluster_id=cluster_id, state=self._oci_state)

    def hold_limits(self, spec: dict[str, Any], container: Container) -> str:
        """Have the kernel hold a container's limits; return why it does not, empty when it does."""
        if spec.get("oci") or self.context.isolation != "network" or self.record.session:
            return ""
        try:
            name = group_name(self.context.cluster_id, self.record.uid, container.name, spec["attempt"])
            spec["cgroups"] = hold_limits(container, name)
        except OSError as error:
            return f"limits of container {container.name} are not held: {error}"
        return ""

    def was_out_of_memory(self, report: dict[str, Any]) -> bool:
        """Return whether an ended container was killed for want of memory."""
        return was_out_of_memory(self.context.cluster_id, self.record.uid, report)

    async def make(self, pod: Pod, plans: list[VolumePlan], ended: Sequence[dict[str, Any]] = ()) -> None:
        """Build the place; volumes are written while the shim enters its namespaces.

        Args:
            pod: the pod.
            plans: its volumes.
            ended: reports of containers that ended in a place before this one, for the shim's record.

        Raises:
            MountError: a host path is missing.
            ShimError, ClusterError: the machine refuses; what was made is left for ``remove``.
        """
        context, record = self.context, self.record
        self.folder.mkdir(parents=True, exist_ok=True)
        record.write(self.folder)
        context.names.add(record.uid, record.host)
        self.volumes = self._volume_paths(plans)
        await context.plugins.serve(record.uid, map(str, self.volumes.values()))
        node: dict[str, str] = {}
        if context.network is not None and record.host_network and record.address != context.network.gateway:
            node["network"] = await context.network.node_namespace(record.address)
        shim = await self.fork_server.spawn(self._config(pod, plans) | node | {"ended": list(ended)})
        try:
            self._fill(pod, plans)
            async with asyncio.timeout(END_TIMEOUT_S):
                created = await shim.created
            if created["event"] != "created":
                raise ShimError(f"cannot set up the pod's namespaces: {created['error']}")
            network = None
            if self._has_own_network(pod) and context.network is not None:
                pid = created["pid"]
                await context.network.add_link(record.uid, pid, record.address)
                context.network.direct.join(record.uid, record.peers, record.address, f"/proc/{pid}/ns/net")
                network = {
                    "interface": INTERFACE_IN_POD,
                    "address": record.address,
                    "prefix": context.network.subnet.prefixlen,
                    "gateway": context.network.gateway,
                }
            shim.send("configure", network=network)
        except BaseException:
            shim.send("end")
            raise
        self.shim = shim
        context.names.link(record.host, self.remote_shell_socket)

    async def adopt(self, plans: list[VolumePlan]) -> bool:
        """Connect to the shim that an agent before this one started; False when it is gone."""
        self.volumes = self._volume_paths(plans)
        self.context.names.add(self.record.uid, self.record.host)
        with contextlib.suppress(ClusterError):  # said in the log where it happens; the pod runs
            await self.context.plugins.serve(self.record.uid, map(str, self.volumes.values()))
        try:
            self.shim = await ShimConnection.connect(self.context.paths.pod_socket(self.record.uid))
        except OSError:
            return False
        self.context.names.link(self.record.host, self.remote_shell_socket)
        return True

    @property
    def remote_shell_socket(self) -> Path:
        """The shim's second socket, which takes commands only."""
        return self.context.paths.run / f"{self.record.uid}.rsh"

    def plan_volumes(self, pod: Pod) -> list[VolumePlan]:
        """Return what the pod's volumes need; see ``volumes.plan_volume`` for what it raises."""
        objects = self.context.objects
        facts = self.context.facts(self.record.address, pod.spec.node_name)
        lookup, tokens = objects.lookup(pod.metadata.namespace), objects.tokens(pod)
        plans = [plan_volume(pod, volume, facts, lookup, tokens) for volume in pod.spec.volumes]
        plugins, node = self.context.plugins, pod.spec.node_name
        return [replace(plan, host=plan.host and plugins.host_path(plan.host, node)) for plan in plans]

    def refresh_volumes(self, pod: Pod, plans: list[VolumePlan]) -> list[str]:
        """Write changed config maps and secrets into the running pod; return the volumes that changed."""
        gid = self._group(pod)
        changed = []
        for plan in plans:
            if plan.files is not None and write_projection(self.volumes[plan.name], plan.files, gid=gid):
                changed.append(plan.name)
        return changed

    async def end_shim(self) -> None:
        """End every process of the pod, the shim last; what the pod has on disk stays."""
        shim, self.shim = self.shim, None
        if shim is not None:
            shim.subscribe(lambda _: None, lambda: None)
            with contextlib.suppress(ShimError):
                await shim.call("end")
            await shim.close()

    async def remove(self) -> None:
        """End every process of the pod and remove all that it had, except its logs."""
        context, record = self.context, self.record
        await self.end_shim()
        await delete_containers(self._oci_state, record.uid)
        await asyncio.to_thread(remove_cgroups, context.cluster_id, of=record.uid)
        context.names.remove(record.uid, record.host.scope)
        context.addresses.release(record.address)
        context.gpus.release(record.uid)
        await context.plugins.release(record.uid)
        if context.network is not None:
            context.network.end_link(record.uid)
        for path in (context.paths.pod_socket(record.uid), self.remote_shell_socket):
            path.unlink(missing_ok=True)
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    def _config(self, pod: Pod, plans: list[VolumePlan]) -> dict[str, Any]:
        paths, record = self.context.paths, self.record
        namespaces: list[str] = [] if self.context.isolation == "plain" else ["mount", "uts", "ipc"]
        if record.session:
            namespaces = ["mount", "uts"] if namespaces and record.session == NODE else []
        if self._has_own_network(pod):
            namespaces.append("net")
        gid = self._group(pod)
        tmpfs = [
            {
                "path": str(self.volumes[plan.name]),
                "size_bytes": plan.memory_bytes,
                "options": f"mode={plan.mode:o}"
                if gid is None
                else f"mode={plan.mode | SET_GROUP:o},gid={gid}",
            }
            for plan in plans
            if plan.memory_bytes is not None and namespaces and not record.session
        ]
        return {
            "uid": record.uid,
            "folder": str(self.folder),
            "control": str(paths.pod_socket(record.uid)),
            "rsh": str(self.remote_shell_socket),
            "hostname": uts_name(pod),
            "namespaces": namespaces,
            "shm_bytes": 0,
            "binds": self._own_files() if record.session else None,
            "tmpfs": tmpfs,
            "sysctls": {
                item["name"].replace("/", "."): item["value"]
                for item in pod.spec.security_context.sysctls
                if self.context.isolation == "network"
            },
            "devices": self._device_files(pod),
        }

    def _device_files(self, pod: Pod) -> list[str]:
        given = (one for grant in self.record.grants.values() for one in grant.files)
        return list(dict.fromkeys((*self.context.gpus.files(pod.spec.node_name, self.record.gpus), *given)))

    def _own_files(self) -> list[list[str]]:
        """Return which of the machine's files a pod with a host name of its own sees other contents of."""
        hostname = self.folder / "hostname"
        hostname.write_text(f"{self.record.hostname}\n", encoding="utf-8")  # before the shim shows it
        shared = self.context.names.hosts_file(self.record.host.scope)
        files = [(self._own_file("hosts") or shared, "/etc/hosts")]
        files.append((hostname, "/etc/hostname"))
        if resolv := self.context.resolv_of(self.record.address):
            files.append((resolv, "/etc/resolv.conf"))
        return [[str(source), target] for source, target in files]

    def _volume_paths(self, plans: list[VolumePlan]) -> dict[str, Path]:
        paths = {}
        for plan in plans:
            path = Path(plan.host.path) if plan.host else self.folder / "volumes" / plan.name
            if plan.host is None:
                path.mkdir(parents=True, exist_ok=True)
            paths[plan.name] = path
        return paths

    def _fill(self, pod: Pod, plans: list[VolumePlan]) -> None:
        gid = self._group(pod)
        for plan in plans:
            if plan.host is not None:
                is_own = self._is_own(plan)
                check_host_path(plan.host, () if is_own else self.context.private)
                if is_own and not self.context.plugins.is_own(plan.host.path):
                    self.volumes[plan.name].chmod(0o777)
            elif plan.files is not None:
                write_projection(self.volumes[plan.name], plan.files, gid=gid)
            else:
                if gid is not None:
                    os.chown(self.volumes[plan.name], -1, gid)
                self.volumes[plan.name].chmod(plan.mode if gid is None else plan.mode | SET_GROUP)
        mounts = (
            mount
            for container in (*pod.spec.init_containers, *pod.spec.containers)
            for mount in container.volume_mounts
        )
        self.make_sub_paths([(mount.name, mount.sub_path) for mount in mounts if mount.sub_path])
        (self.folder / COVER).mkdir(exist_ok=True)
        (self.folder / "hostname").write_text(f"{uts_name(pod)}\n", encoding="utf-8")
        base = self.context.resolv_of(self.record.address)
        if base is not None and (pod.spec.dns_config or pod.spec.dns_policy == "None"):
            before = parse_resolv_conf(base.read_text(encoding="utf-8", errors="replace"))
            own = with_dns_config(before, pod.spec.dns_policy, pod.spec.dns_config or {})
            text = render_resolv_conf(own, "dnsConfig of the pod")
            (self.folder / "resolv.conf").write_text(text, encoding="utf-8")
        if self.context.isolation == "plain":
            for name in ("home", "tmp"):
                (self.folder / name).mkdir(exist_ok=True)

    def make_sub_paths(self, wanted: Sequence[tuple[str, str]]) -> None:
        """Make folders in volumes that are mounted in place of the whole (volume, path).

        Raises:
            MountError: one leads to what no pod may mount.
        """
        own = (self.folder / "volumes", self.context.paths.volumes, self.context.plugins.root)
        for name, sub_path in wanted:
            if name in self.volumes:
                is_host, private = self.volumes[name].parent not in own, self.context.private
                _make_sub_path(name, self.volumes[name], sub_path, is_host=is_host, private=private)

    def _is_own(self, plan: VolumePlan) -> bool:
        """Return whether a volume is a folder that was made for pods, among the cluster's own files."""
        if plan.host is None or self.context.plugins.is_own(plan.host.path):
            return plan.host is not None
        return Path(plan.host.path).parent == self.context.paths.volumes

    def _group(self, pod: Pod) -> int | None:
        return pod.spec.security_context.fs_group if self.context.isolation == "network" else None


def address_for(context: AgentContext, pod: Pod) -> str:
    """Return the address of a pod that is about to start: its own, its node's, or the machine's."""
    if not on_machines_network(pod):
        return context.addresses.take()
    return context.api_host if kind_of_session(pod) == MACHINE else context.host_ip(pod.spec.node_name)


def _make_sub_path(volume: str, path: Path, sub_path: str, *, is_host: bool, private: Sequence[str]) -> None:
    source = path / sub_path
    if not source.resolve().is_relative_to(path.resolve()):
        raise MountError(f"subPath `{sub_path}` leads out of the volume `{volume}`")
    if is_host and any(source.resolve().is_relative_to(folder) for folder in private):
        raise MountError(
            f"subPath `{sub_path}` of volume `{volume}` is among the files of a cluster, "
            "which no pod may mount"
        )
    if not source.exists():
        source.mkdir(parents=True, exist_ok=True)
