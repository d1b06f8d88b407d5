"""GPUs that exist in name only: counted, handed out and waited for as real ones are. Pure.

What runs on them finds none: their ids match no device, so that CUDA sees nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangline.devices.inventory import Gpu, Inventory

PLAIN_MODEL = "gpu"


def simulate(node: str, count: int, model: str = "", links: Sequence[Sequence[str]] = ()) -> Inventory:
    """Return the simulated GPUs of one node.

    Args:
        node: its name, which makes the ids unique in the cluster and the same after a restart.
        count: how many.
        model: name of the machine that they stand for; by default a plain name.
        links: names of the links between each pair, where a model of the machine knows them.

    Example:
        >>> simulate("node-0", 1).gpus[0].uuid
        'GPU-simulated-node-0-0'
    """
    gpus = tuple(Gpu(uuid=f"GPU-simulated-{node}-{index}", index=index) for index in range(count))
    return Inventory(
        source="simulated", model=model or PLAIN_MODEL, gpus=gpus, links=tuple(tuple(row) for row in links)
    )
