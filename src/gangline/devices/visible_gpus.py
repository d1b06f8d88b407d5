"""The GPUs that the user's ``CUDA_VISIBLE_DEVICES`` leaves to a program: those that its ranks share. Pure.

It is read as CUDA reads it: indexes, or beginnings of UUIDs that fit one GPU; the list ends before the first
entry that names none, such as ``-1``. An index is a GPU's place among those of its node, simulated ones
included, in the order of ``nvidia-smi`` (``CUDA_DEVICE_ORDER=PCI_BUS_ID``).
Source: CUDA C++ Programming Guide, environment variables.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

from gangline.devices.inventory import TOPOLOGY_ANNOTATION
from gangline.errors import UserError
from gangline.workloads.gpus import VISIBLE_ANNOTATION
from gangline.workloads.kinds import find_kind
from gangline.workloads.requests import pod_gpus

Obj = dict[str, Any]

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus(text: str, nodes: Iterable[Obj]) -> dict[str, list[str]]:
    """Return by node the ids of the GPUs that the variable names.

    Args:
        text: its value; an empty one names none.
        nodes: in wire form.

    Raises:
        UserError: it names a part of a GPU (MIG).
    """
    words = [word.strip() for word in text.split(",")]
    if mig := next((word for word in words if word.startswith("MIG")), ""):
        raise UserError(
            f"{VARIABLE} names `{mig}`, a part of a GPU (MIG); ranks are given whole GPUs",
            hint=f"name GPUs by index or UUID, as {VARIABLE}=0,1, or leave --gpus-per-rank and --gpus out",
        )
    found = {}
    for node in nodes:
        note = (node["metadata"].get("annotations") or {}).get(TOPOLOGY_ANNOTATION)
        gpus = {gpu["uuid"]: gpu["index"] for gpu in json.loads(note)["gpus"]} if note else {}
        found[node["metadata"]["name"]] = _named(words, gpus)
    return found


def _named(words: list[str], gpus: dict[str, int]) -> list[str]:
    named: list[str] = []
    for word in words:
        meant = [
            uuid
            for uuid, index in gpus.items()
            if (word.isdecimal() and int(word) == index)
            or (word.startswith("GPU-") and uuid.startswith(word))
        ]
        if len(meant) != 1:
            break
        named += [uuid for uuid in meant if uuid not in named]
    return named


def with_visible_gpus(obj: Obj, visible: dict[str, list[str]]) -> Obj:
    """Return a manifest whose pods get none but these GPUs."""
    obj = copy.deepcopy(obj)
    kind = find_kind(str(obj.get("kind")))
    for _, template in kind.templates(obj) if kind else ():
        if pod_gpus(template.get("spec")):
            annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
            annotations[VISIBLE_ANNOTATION] = ",".join(uuid for ids in visible.values() for uuid in ids)
    return obj
