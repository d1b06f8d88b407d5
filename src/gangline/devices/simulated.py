"""GPUs that exist in name only: counted, handed out and waited for as real ones are. Pure.

What runs on them finds none: their ids match no device, so that CUDA sees nothing.
"""

from __future__ import annotations

from gangline.devices.inventory import DeviceInventory, Gpu
from gangline.errors import UserError
from gangline.topology import known_machine

PLAIN_MODEL = "gpu"
GPUS_MAX = 64
"""Of one node; sets of GPUs are kept in 64-bit masks."""


def simulate(node: str, count: int, model: str = "") -> DeviceInventory:
    """Return the simulated GPUs of one node; ids are unique in the cluster and the same after a restart.

    Args:
        node: its name.
        count: how many, 1 to ``GPUS_MAX``.
        model: a known machine, whose links and name they get; by default a plain name without links.

    Raises:
        UserError: the count is out of bounds, the machine is unknown or has fewer GPUs.

    Example:
        >>> simulate("node-0", 1).gpus[0].uuid
        'GPU-simulated-node-0-0'
    """
    if not 1 <= count <= GPUS_MAX:
        raise UserError(f"a node has 1 to {GPUS_MAX} simulated GPUs (found `{count}`)")
    ids = [f"GPU-simulated-{node}-{index}" for index in range(count)]
    if not model:
        gpus = tuple(Gpu(uuid, index) for index, uuid in enumerate(ids))
        return DeviceInventory(source="simulated", model=PLAIN_MODEL, gpus=gpus)
    machine = known_machine(model)
    if count > machine.count:
        raise UserError(
            f"a `{model}` has {machine.count} GPUs, {count} are to be simulated",
            hint="leave --gpu-model out, or simulate fewer on each node",
        )
    machine = machine.subset(range(count))
    gpus = tuple(Gpu(uuid, index, numa=machine.numa[index]) for index, uuid in enumerate(ids))
    return DeviceInventory(source="simulated", model=machine.model, gpus=gpus, links=machine.links)
