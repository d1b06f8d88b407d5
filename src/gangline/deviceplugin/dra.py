"""A DRA driver: publishes a node's GPUs as a ResourceSlice, and prepares claims for its kubelet.

The kubelet finds the driver by a socket in its folder of plugins, asks it who it is, and then to prepare the
claims of a pod before its containers start. What a container gets is in a CDI file for each claim, which
outlives this process; preparing twice writes the same file.
Source: Kubernetes, "Dynamic Resource Allocation"; ``k8s.io/kubelet/pkg/apis/dra/v1``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.api.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.deviceplugin import dra_pb2 as api
from gangline.deviceplugin import protocol
from gangline.deviceplugin.dra_objects import CDI_KIND, cdi_name, cdi_spec, given_devices, resource_slice
from gangline.deviceplugin.gpu_source import GpuSource, as_now
from gangline.devices.inventory import DeviceInventory
from gangline.errors import GanglineError
from gangline.kube.errors import NotFound
from gangline.kube.verbs import ObjectClient
from gangline.workloads.device_class import DRIVER

KUBELET_FOLDER = Path("/var/lib/kubelet")
CDI_FOLDER = Path("/var/run/cdi")
PUBLISH_RETRY_S = 10.0


class DraDriver:
    """See the module's text.

    Args:
        client: of the cluster.
        node: the node's name.
        source: of its GPUs.
        say: takes each line of the log.
        kubelet: the kubelet's folder.
        cdi: where the container runtime reads CDI files.
    """

    def __init__(
        self,
        client: ObjectClient,
        node: str,
        source: GpuSource,
        say: Callable[[str], None],
        kubelet: Path = KUBELET_FOLDER,
        cdi: Path = CDI_FOLDER,
    ) -> None:
        self._client = client
        self._node = node
        self._source = source
        self._say = say
        self._socket = kubelet / "plugins" / DRIVER / "dra.sock"
        self._registration = kubelet / "plugins_registry" / f"{DRIVER}-reg.sock"
        self._cdi = cdi
        self._inventory = DeviceInventory()

    async def run(self) -> None:
        """Serve until cancelled."""
        for folder in (self._socket.parent, self._registration.parent, self._cdi):
            folder.mkdir(parents=True, exist_ok=True)
        self._inventory = await asyncio.to_thread(self._source.read)
        self._say(f"{self._inventory.in_words}, {self._source.origin}: {self._inventory.model}")
        calls: dict[str, Any] = {
            "NodePrepareResources": self._prepare,
            "NodeUnprepareResources": self._unprepare,
        }
        server = await protocol.serve(self._socket, protocol.DRA_DRIVER, calls)
        about: dict[str, Any] = {"GetInfo": self._info, "NotifyRegistrationStatus": self._registered}
        # Last: the kubelet calls as soon as it sees this socket.
        registration = await protocol.serve(self._registration, protocol.WATCHED_REGISTRATION, about)
        try:
            await self._keep_published()
        finally:
            await registration.stop(None)
            await server.stop(None)
            self._registration.unlink(missing_ok=True)
            self._socket.unlink(missing_ok=True)

    # The cluster

    async def _keep_published(self) -> None:
        told: DeviceInventory | None = None
        while True:
            pause_s = self._source.period_s
            if told != self._inventory:
                wanted = self._inventory
                try:
                    await self._publish(wanted)
                    told = wanted
                except GanglineError as error:
                    pause_s = PUBLISH_RETRY_S
                    self._say(f"Could not publish devices, retrying in {pause_s:.0f} s: {error}")
            await asyncio.sleep(pause_s)
            try:
                found = await asyncio.to_thread(self._source.read)
            except (OSError, ValueError) as error:
                self._say(f"GPUs cannot be asked: {error}")
                found = self._inventory if self._inventory.is_simulated else DeviceInventory()
            self._inventory = as_now(self._inventory, found)

    async def _publish(self, inventory: DeviceInventory) -> None:
        node = await self._client.get(NODES, self._node)
        wanted = resource_slice(inventory, self._node, node["metadata"]["uid"])
        try:
            known = await self._client.get(RESOURCE_SLICES, wanted["metadata"]["name"])
        except NotFound:
            await self._client.create(RESOURCE_SLICES, wanted)
        else:
            wanted["spec"]["pool"]["generation"] = known["spec"]["pool"]["generation"]
            wanted["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
            if known["spec"] == wanted["spec"]:
                return
            wanted["spec"]["pool"]["generation"] += 1
            await self._client.update(RESOURCE_SLICES, wanted)
        self._say(f"Published {len(wanted['spec']['devices'])} devices of {DRIVER}")

    # The kubelet

    async def _info(self, request: Any, context: Any) -> api.PluginInfo:
        return api.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=str(self._socket), supported_versions=["v1.DRAPlugin"]
        )

    async def _registered(
        self, request: api.RegistrationStatus, context: Any
    ) -> api.RegistrationStatusResponse:
        self._say(
            "Registered DRA driver with Kubelet"
            if request.plugin_registered
            else f"Kubelet refused the DRA driver: {request.error}"
        )
        return api.RegistrationStatusResponse()

    async def _prepare(
        self, request: api.NodePrepareResourcesRequest, context: Any
    ) -> api.NodePrepareResourcesResponse:
        answers = {one.uid: await self._prepare_one(one) for one in request.claims}
        return api.NodePrepareResourcesResponse(claims=answers)

    async def _prepare_one(self, asked: api.Claim) -> api.NodePrepareResourceResponse:
        where = f"claim {asked.namespace}/{asked.name}"
        try:
            claim = await self._client.get(RESOURCE_CLAIMS, asked.name, asked.namespace)
            if claim["metadata"]["uid"] != asked.uid:
                return api.NodePrepareResourceResponse(error=f"{where} is another one by now")
            devices = given_devices(claim, self._node)
            spec = cdi_spec(self._inventory, asked.uid, devices)
            path = self._file(asked.uid)
            draft = path.with_suffix(".draft")
            draft.write_text(json.dumps(spec))
            draft.replace(path)
        except KeyError as error:
            return api.NodePrepareResourceResponse(error=f"{where}: node {self._node} has no device {error}")
        except (GanglineError, OSError) as error:
            return api.NodePrepareResourceResponse(error=f"{where} cannot be prepared: {error}")
        self._say(f"Prepared {where}: {', '.join(one for names in devices.values() for one in names)}")
        return api.NodePrepareResourceResponse(
            devices=[
                api.Device(
                    request_names=[name.partition("/")[0]],
                    pool_name=self._node,
                    device_name=device,
                    cdi_device_ids=[f"{CDI_KIND}={cdi_name(asked.uid, name)}"],
                )
                for name, names in devices.items()
                for device in names
            ]
        )

    async def _unprepare(
        self, request: api.NodeUnprepareResourcesRequest, context: Any
    ) -> api.NodeUnprepareResourcesResponse:
        for one in request.claims:
            self._file(one.uid).unlink(missing_ok=True)
            self._say(f"Unprepared claim {one.namespace}/{one.name}")
        done = {one.uid: api.NodeUnprepareResourceResponse() for one in request.claims}
        return api.NodeUnprepareResourcesResponse(claims=done)

    def _file(self, uid: str) -> Path:
        return self._cdi / f"{DRIVER}-claim-{uid}.json"
