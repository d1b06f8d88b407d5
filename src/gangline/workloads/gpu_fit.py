"""``--fit``: the same job on as many GPUs as there are. Pure: a smaller manifest, and what was made smaller.

First fewer workers of the same size; where not even one fits, smaller ones, with as many ranks for each GPU
as before. Where there is no GPU at all the ranks run on the cores. The user's file stays as it is.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import msgspec

from gangline.api.mpijob import LAUNCHER, WORKER
from gangline.api.mpijob_reading import read_mpijob
from gangline.api.mpijob_v1alpha1 import UNITS_PER_NODE
from gangline.api.resources import MPIJOBS
from gangline.errors import UnschedulableError
from gangline.workloads.gpu_demand import GpuDemand, GpuRoom
from gangline.workloads.kinds import pod_templates
from gangline.workloads.requests import GPU, GPU_ALIASES, counts_as_gpu, pod_gpus

Obj = dict[str, Any]

_LAUNCHERS = ("mpirun", "mpiexec", "horovodrun")
_COUNTS = ("-n", "-np", "--n", "--np", "-c")


class JobSize(msgspec.Struct, frozen=True):
    """How large a job is.

    Attributes:
        workers: pods.
        slots: ranks of each.
        gpus: GPUs of each.
    """

    workers: int
    slots: int
    gpus: int

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return self.workers * self.slots


def fit_shape(shape: JobSize, room: GpuRoom, beside: int = 0) -> JobSize:
    """Return the largest shape that fits, with as many GPUs for each rank as before where that is a number.

    Example:
        >>> fit_shape(Shape(workers=2, slots=8, gpus=8), GpuRoom((2,)))
        Shape(workers=1, slots=2, gpus=2)
    """
    if not room.largest:
        ranks = min(shape.ranks, room.cores)
        workers = min(shape.workers, ranks)
        return JobSize(workers, min(shape.slots, ranks // workers), 0)
    workers = min(shape.workers, room.pods_of(shape.gpus, beside=beside))
    if workers:
        return JobSize(workers, shape.slots, shape.gpus)
    gpus = max(1, room.largest - (beside if len(room.nodes) == 1 else 0))
    slots = max(1, shape.slots * gpus // shape.gpus)
    if shape.gpus % shape.slots == 0:
        gpus = max(1, min(gpus, slots * (shape.gpus // shape.slots)))
    return JobSize(max(1, min(shape.workers, room.pods_of(gpus, beside=beside))), slots, gpus)


def fit_object(obj: Obj, room: GpuRoom) -> tuple[Obj, list[str]]:
    """Return a manifest that fits, and what was changed in it: ``workers 2 -> 1``.

    Raises:
        UnschedulableError: it cannot be made to fit by these means.
    """
    demand = GpuDemand.of(obj)
    smaller = copy.deepcopy(obj)
    if obj.get("kind") == MPIJOBS.kind:
        changes = _fit_mpijob(smaller, demand, room)
    else:
        changes = _fit_pods(smaller, demand, room)
    if left := GpuDemand.of(smaller).shortage(room):
        name = f"{str(obj.get('kind')).lower()} `{(obj.get('metadata') or {}).get('name')}`"
        raise UnschedulableError(
            f"--fit cannot make {name} small enough: {left}", hint="lower its GPUs in the manifest"
        )
    return smaller, changes


def _fit_pods(obj: Obj, demand: GpuDemand, room: GpuRoom) -> list[str]:
    for _, template in pod_templates(obj):
        _set_gpus(template, room.largest)
    return [f"GPUs of a pod {demand.each} -> {room.largest}"]


def _fit_mpijob(obj: Obj, demand: GpuDemand, room: GpuRoom) -> list[str]:
    spec, job = obj["spec"], read_mpijob(obj).job
    before = JobSize(demand.pods, job.spec.slots_per_worker or 1, demand.each)
    if not before.gpus:
        return []
    after = fit_shape(before, room, demand.beside)
    spec["slotsPerWorker"] = after.slots
    roles = spec.get("mpiReplicaSpecs")
    if roles:
        holder = roles[WORKER if WORKER in roles else LAUNCHER]
        holder["replicas"] = after.workers
        _set_gpus(holder.get("template") or {}, after.gpus)
    else:
        _resize_v1alpha1(spec, demand.pods, after)
    changes = [
        f"{what} {old} -> {new}"
        for what, old, new in (
            ("ranks", before.ranks, after.ranks),
            ("workers", before.workers, after.workers),
            ("slots of each", before.slots, after.slots),
            ("GPUs of each", before.gpus, after.gpus),
        )
        if old != new
    ]
    for path, template in pod_templates(obj):
        if (not roles or LAUNCHER in path) and _set_ranks(template, before.ranks, after.ranks):
            changes.append(f"the launcher starts {after.ranks}")
    launchers = 0 if job.launcher_waits else 1
    return changes + _fit_gang(spec, after.workers + launchers)


def _resize_v1alpha1(spec: Obj, workers: int, after: JobSize) -> None:
    """Say the shape in the words of v1alpha1: a number for the whole job beside one template for both roles.

    Args:
        spec: is changed; one of ``gpus``, ``processingUnits`` and ``replicas`` counts in it.
        workers: before.
        after: what it shall be. Units that are no GPUs stay as many for each worker.
    """
    _set_gpus(spec["template"], after.gpus)
    counted = next(name for name in (*UNITS_PER_NODE, "replicas") if spec.get(name) is not None)
    if counted == "replicas":
        spec["replicas"] = after.workers
        return
    is_gpus = counted == "gpus" or _names_gpus(spec.get("processingResourceType", GPU))
    each = after.gpus if is_gpus else spec[counted] // workers
    spec.pop(UNITS_PER_NODE[counted], None)
    if each:
        spec |= {counted: after.workers * each, UNITS_PER_NODE[counted]: each}
    else:
        del spec[counted]
        spec["replicas"] = after.workers


def _fit_gang(spec: Obj, pods: int) -> list[str]:
    """Lower what the gang asks for at once: one of more pods than the job has left would never start."""
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    changes = []
    least = policy.get("minAvailable")
    if isinstance(least, int) and least > pods:
        policy["minAvailable"] = pods
        changes.append(f"minAvailable {least} -> {pods}")
    if policy.pop("minResources", None) is not None:
        changes.append("minResources left out")
    return changes


def _set_gpus(template: Obj, count: int) -> None:
    """Leave the pod's containers that many GPUs; the first that ask keep theirs."""
    left, spec = count, template.get("spec") or {}
    starting = [one for one in spec.get("initContainers") or [] if one.get("restartPolicy") != "Always"]
    for container in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
        given = min(left, pod_gpus({"containers": [container]}))
        left -= given if container not in starting else 0
        for amounts in (container.get("resources") or {}).values():
            names = [name for name in amounts if _names_gpus(name)] if isinstance(amounts, dict) else []
            for name in names:
                del amounts[name]
            if names and given:
                amounts[names[0]] = given


def _names_gpus(resource: str) -> bool:
    return resource in GPU_ALIASES or counts_as_gpu(resource)


def _set_ranks(template: Obj, before: int, after: int) -> bool:
    """Lower the number of ranks where a launcher's line says more than there are now; True when it did."""
    changed = False
    for container in (template.get("spec") or {}).get("containers") or []:
        words = [str(word) for field in ("command", "args") for word in container.get(field) or []]
        is_launcher = bool(words) and words[0].rpartition("/")[2] in _LAUNCHERS
        for field in ("command", "args"):
            line = container.get(field)
            if line:
                fresh = _with_count([str(word) for word in line], before, after, is_launcher=is_launcher)
                changed |= fresh != [str(word) for word in line]
                container[field] = fresh
    return changed


def _with_count(line: list[str], before: int, after: int, *, is_launcher: bool) -> list[str]:
    fresh = list(line)
    for index, word in enumerate(line):
        is_count = is_launcher and index > 0 and line[index - 1] in _COUNTS and word.isdigit()
        if is_count:
            if after < int(word) <= before:
                fresh[index] = str(after)
            break
        if not is_launcher and any(name in word for name in _LAUNCHERS):
            fresh[index] = re.sub(rf"(\s(?:-n|-np|--np)[ =]){before}(?=\s|$)", rf"\g<1>{after}", word)
    return fresh
