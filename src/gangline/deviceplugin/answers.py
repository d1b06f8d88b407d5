"""What a kubelet is answered about the GPUs of its node. Pure.

Nothing is asked of a GPU here: one that is lost must not take the answers about the others with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import or_

from gangline.devices.driver_files import FILE_ID
from gangline.devices.inventory import DeviceInventory, topology_note
from gangline.topology import choices, read_annotation

SETS_MAX = 20_000
"""Sets of GPUs that are compared where some are prescribed: all sets of 16 GPUs, in about a second."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a container gets: variables, and device files of the machine."""

    variables: dict[str, str]
    minors: list[int]


def preferred(
    inventory: DeviceInventory,
    available: Sequence[str],
    included: Sequence[str],
    count: int,
    promised: Sequence[frozenset[str]] = (),
) -> list[str]:
    """Return which GPUs to take: a set that was chosen for a pod of this node, else the fastest that is left.

    A kubelet does not say for which pod it asks. Of equal sets that wait for their pods any will do, for the
    pods are told afterwards what they got.

    Args:
        inventory: of the node.
        available: ids to choose from; unknown ones are left out.
        included: ids that must be among them.
        count: how many.
        promised: sets that the scheduler chose for pods of this node, which may have them already.

    Returns:
        Ids in the order of the indexes; fewer than ``count`` where there are not so many.
    """
    note = topology_note(inventory)
    if note is None:
        return []
    node = read_annotation(note)
    fixed, free = node.mask_of(list(included)), node.mask_of(list({*available, *included}))
    waiting = [mask for found in promised if (mask := node.mask_of(found)) and not mask & ~free]
    for mask in waiting:
        if mask.bit_count() == count and not fixed & ~mask:
            return list(node.uuids_of(mask))
    table, missing = choices(node.machine), count - fixed.bit_count()
    if missing <= 0:
        return list(node.uuids_of(fixed))
    unpromised = free & ~reduce(or_, waiting, 0) | fixed
    if unpromised.bit_count() >= count:
        free = unpromised
    if not fixed:
        best = table.best(free, min(count, free.bit_count()))
    else:
        others = [1 << bit for bit in range(len(node.uuids)) if free & ~fixed & 1 << bit]
        sets = (fixed | sum(chosen) for chosen in combinations(others, min(missing, len(others))))
        bounded = (mask for mask, _ in zip(sets, range(SETS_MAX), strict=False))
        best = max(bounded, key=lambda mask: (table.worth_gb_s(mask), table.left(free & ~mask)))
    return list(node.uuids_of(best))


def given(inventory: DeviceInventory, ids: Sequence[str]) -> Given:
    """Return what a container with these GPUs finds, in the order of their indexes, whatever ``ids`` has.

    A simulated GPU is no device: its id in CUDA's own variable keeps CUDA from finding one.

    Raises:
        KeyError: an id is unknown; it is the error's argument.
    """
    known = {gpu.uuid: gpu for gpu in inventory.gpus}
    gpus = sorted((known[one] for one in ids), key=lambda gpu: gpu.index)
    names = ",".join(gpu.uuid.removeprefix(FILE_ID) for gpu in gpus)
    variables = {"NVIDIA_VISIBLE_DEVICES": names}
    if inventory.is_simulated:
        variables["CUDA_VISIBLE_DEVICES"] = names
    return Given(variables, [gpu.minor for gpu in gpus if gpu.minor is not None])
