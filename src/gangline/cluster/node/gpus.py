"""The GPUs that this agent hands out: real ones of the machine, or simulated ones of each node.

Real GPUs are the machine's, and every node of the cluster is the machine: so the first node alone shows them.
One cluster of a machine at a time has them (``MachineClaim``). Simulated ones are a matter of names, and each
node has its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gangline.api.core import Node
from gangline.devices.driver_files import FILE_ID, device_files
from gangline.devices.find import FoundDevices, find_gpus
from gangline.devices.inventory import (
    ADDED_ANNOTATION,
    UNHEALTHY_ANNOTATION,
    DeviceInventory,
    read_added,
    read_unhealthy,
    with_unhealthy,
)
from gangline.devices.ledger import GpuLedger, GpuRequest, Shares
from gangline.devices.machine_claim import MachineClaim
from gangline.devices.simulated import simulate
from gangline.workloads.gpu_source import gpus_in_words, kind_of

FIRST_NODE = "node-0"
FIND_TIMEOUT_S = 20.0
"""A driver that does not answer by then counts as no GPU: pods without GPUs need not wait for it."""

CLAIM_PERIOD_S = 10.0
_UVM = Path("/dev/nvidia-uvm")
_MODPROBE_TIMEOUT_S = 10.0


def no_change(node: str) -> None:
    """Take no notice of a change."""


class AgentGpus:
    """GPUs of all nodes of this agent, with the books over who holds which.

    Args:
        real: the machine's GPUs, of which the first node shows all; ignored when some are simulated.
        simulated: how many simulated ones each node shows.
        model: their name.
        claim: the right to hand the real ones out.
        log: structlog's.
    """

    def __init__(
        self,
        real: DeviceInventory | None = None,
        *,
        simulated: int = 0,
        model: str = "",
        claim: MachineClaim | None = None,
        log: Any = None,
    ) -> None:
        self._real = real or DeviceInventory()
        self._simulated = simulated
        self._model = model
        self._claim = claim or MachineClaim()
        self._log = log
        self._ledger = GpuLedger({})
        self._unhealthy: dict[str, frozenset[int]] = {}
        self._added: dict[str, int] = {}
        self._waiting: dict[str, Callable[[], None]] = {}
        self.on_change: Callable[[str], None] = no_change

    @property
    def hides(self) -> bool:
        """Whether a container that asks for none must be told that there are none for it."""
        return bool(self._real.gpus) or self._simulated > 0 or any(self._added.values())

    def of_node(self, node: Node) -> DeviceInventory:
        """Return what a node shows; of simulated GPUs those that its annotation names are unhealthy."""
        name = node.metadata.name
        before = self._unhealthy.get(name, frozenset())
        self._unhealthy[name] = read_unhealthy(node.metadata.annotations.get(UNHEALTHY_ANNOTATION, ""))
        self._added[name] = max(
            read_added(node.metadata.annotations.get(ADDED_ANNOTATION, "")).values(), default=0
        )
        found = self.inventory(name)
        if before - self._unhealthy[name]:
            for wake in list(self._waiting.values()):
                wake()
        return found

    def inventory(self, node: str) -> DeviceInventory:
        """Return what a node shows; empty for real GPUs that another cluster of the machine has."""
        has_real = node == FIRST_NODE and bool(self._real.gpus) and not self._simulated
        count = 0 if has_real else max(self._simulated, self._added.get(node, 0))
        if count:
            shown = simulate(node, count, self._model)
            self._ledger.show(node, with_unhealthy(shown, self._unhealthy.get(node, frozenset())))
        elif not has_real:
            self._ledger.show(node, DeviceInventory())
        elif self._has_claim():
            self._ledger.show(node, self._real)
        return self._ledger.inventory(node)

    def _has_claim(self) -> bool:
        try:
            return self._claim.acquire()
        except OSError as error:
            self._log.warning(
                "the machine's GPUs cannot be claimed", file=str(self._claim.path), error=str(error)
            )
            return False

    async def keep_claim(self) -> None:
        """Take the real GPUs over once no other cluster has them; ends then, or at once without GPUs."""
        if not self._real.gpus or self._simulated or self._claim.is_held:
            return
        self._log.warning("another cluster of this machine has its GPUs", gpus=self._real.in_words)
        while not self._has_claim():
            await asyncio.sleep(CLAIM_PERIOD_S)
        self._log.info("the machine's GPUs are free now", gpus=self._real.in_words)
        self.on_change(FIRST_NODE)

    def close(self) -> None:
        """Give the claim up."""
        self._claim.release()

    # Handing out

    def take(self, request: GpuRequest) -> Shares:
        """Give a pod its GPUs; see ``GpuLedger.take`` for what it raises."""
        self.inventory(request.node)
        shares = self._ledger.take(request)
        self._waiting.pop(request.uid, None)
        return shares

    def reserve(self, uid: str, shares: Mapping[str, Sequence[str]]) -> None:
        """Note what a running pod has, as an agent before this one gave it."""
        for one in self._ledger.reserve(uid, shares):
            self._log.error("two running pods have the same GPU", gpu=one, uid=uid)

    def release(self, uid: str) -> None:
        """Free what a pod held, and wake every pod that waits."""
        self._waiting.pop(uid, None)
        if self._ledger.release(uid):
            for wake in self._waiting.values():
                wake()

    def call_when_free(self, uid: str, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever a GPU comes free, until the pod has its own or is gone."""
        self._waiting[uid] = wake

    def held(self) -> dict[str, str]:
        """Return which pod (by uid) holds which GPU."""
        return self._ledger.held()

    def in_words(self, node: str, count: int) -> str:
        """Return ``2 simulated GPUs``."""
        return gpus_in_words(count, kind_of(self._ledger.inventory(node).source))

    # What a pod gets

    def files(self, node: str, shares: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the device files of a pod's GPUs, with those that every GPU program needs."""
        held = {one for ids in shares.values() for one in ids}
        gpus = self._ledger.inventory(node).gpus
        return device_files(sorted(gpu.minor for gpu in gpus if gpu.uuid in held and gpu.minor is not None))

    def variables(
        self, shares: Mapping[str, Sequence[str]], container: str, *, sees_own_files: bool
    ) -> dict[str, str]:
        """Return the variables that name a container's GPUs, or say that it has none.

        Args:
            shares: of the pod.
            container: which one.
            sees_own_files: whether the pod sees no other GPU's device file. CUDA then counts the files that
                it sees, which matters for GPUs of which nothing but the file is known.
        """
        ids = list(shares.get(container, ()))
        if not ids:
            return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"} if self.hides else {}
        visible = {"NVIDIA_VISIBLE_DEVICES": ",".join(ids), "CUDA_VISIBLE_DEVICES": ",".join(ids)}
        if not all(one.startswith(FILE_ID) for one in ids):
            return visible
        numbers = [int(one.removeprefix(FILE_ID)) for one in ids]
        seen = sorted({int(one.removeprefix(FILE_ID)) for own in shares.values() for one in own})
        places = [seen.index(number) if sees_own_files else number for number in numbers]
        return visible | {
            "NVIDIA_VISIBLE_DEVICES": ",".join(map(str, numbers)),
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, places)),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }


async def open_gpus(
    facts: Mapping[str, Any], log: Any, find: Callable[[], FoundDevices] = find_gpus
) -> AgentGpus:
    """Return the GPUs of a cluster: simulated ones where its facts ask for them, else the machine's."""
    simulated = int(facts.get("simulated_gpus") or 0)
    model = str(facts.get("gpu_model") or "")
    try:
        async with asyncio.timeout(FIND_TIMEOUT_S):
            found = await asyncio.to_thread(find)
    except TimeoutError:
        found = FoundDevices(DeviceInventory(), f"the driver did not answer within {FIND_TIMEOUT_S:.0f} s")
    if found.trouble:
        log.warning("GPUs could not be asked", trouble=found.trouble)
    real = found.inventory
    if simulated:
        log.info("GPUs are simulated", each_node=gpus_in_words(simulated, "simulated"), machine=real.in_words)
    elif real.gpus:
        log.info("GPUs found", gpus=real.in_words, model=real.model, source=real.source)
        await _make_uvm_file()
    return AgentGpus(real, simulated=simulated, model=model, log=log)


async def _make_uvm_file() -> None:
    """Have the driver make the device file of unified memory, which otherwise appears with its first use.

    A pod could not make it itself: it has a ``/dev`` of its own.
    """
    program = shutil.which("nvidia-modprobe")
    if _UVM.exists() or program is None or not os.access(program, os.X_OK):
        return
    process = await asyncio.create_subprocess_exec(
        program, "-u", "-c=0", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_MODPROBE_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
