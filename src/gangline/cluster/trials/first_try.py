"""``gangline run FILE --try``: published files on a laptop, with what is missing put in its place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gangline.api.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from gangline.cluster.images.image_map import repository
from gangline.cluster.images.local_images import image_name
from gangline.cluster.images.shipped_images import BENCH_LIMITS_VARIABLE, SHIPPED
from gangline.cluster.trials.missing import (
    NODES_OPTION,
    Absent,
    absent_objects,
    needs_torch,
    other_hosts,
    valid_name,
)
from gangline.workloads.capacity import gang_never_fits, gang_requests, never_fits, pod_requests
from gangline.workloads.gpu_demand import GpuDemand, GpuRoom
from gangline.workloads.gpu_source import gpus_in_words
from gangline.workloads.kinds import pod_templates
from gangline.workloads.requests import counts_as_gpu

if TYPE_CHECKING:
    from gangline.api.codec import Document
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

TRIED_ANNOTATION = "gangline.dev/tried-with"
"""On a job that was run with ``--try``: what is in place of what was missing, in words."""
LIMITS = "model=lenet,batch_size=2,num_batches=10,num_warmup_batches=1,num_iters=2,data=synthetic"
"""Sixteen ranks of lenet on two cores end within a minute and 4 GB."""
DEVICES_OPTION = "--num_devices="
_CLAIM_SIZE = "1Gi"


def adapted(document: Document, nodes: Sequence[Obj]) -> Document:
    """Return a document as it can run here, its changes in the annotation ``TRIED_ANNOTATION``. Pure.

    GPUs are not among them: they are added to the cluster.
    """
    value: Obj = copy.deepcopy(document.value)
    changes: list[str] = []
    metadata = value["metadata"]
    if document.kind == PODS.kind and (name := valid_name(document.name)) != document.name:
        metadata["name"] = name
        changes.append(f"named {name}")
    templates = [template for _, template in pod_templates(value)]
    amounts = [pod_requests(template.get("spec") or {}) for template in templates]
    plain = [{name: one for name, one in pod.items() if not counts_as_gpu(name)} for pod in amounts]
    gang = [
        ({name: one for name, one in pod.items() if not counts_as_gpu(name)}, count)
        for pod, count in gang_requests(value)
    ]
    is_too_large = any(never_fits(pod, nodes) for pod in plain) or bool(gang_never_fits(gang, nodes))
    for template in templates:
        spec = template.get("spec") or {}
        if is_too_large:
            changes.append("no requests of cores and memory")
        chosen = spec.get("nodeSelector") or {}
        if chosen and not any(
            chosen.items() <= (node["metadata"].get("labels") or {}).items() for node in nodes
        ):
            del spec["nodeSelector"]
            changes.append("no nodeSelector")
        for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
            if is_too_large:
                _drop_amounts(container)
            changes += _adapt_container(container, nodes)
    note = "; ".join(dict.fromkeys(changes))
    if note:
        metadata.setdefault("annotations", {})[TRIED_ANNOTATION] = note
    return replace(document, value=value)


def _drop_amounts(container: Obj) -> None:
    for amounts in (container.get("resources") or {}).values():
        for name in [name for name in amounts if not counts_as_gpu(name)]:
            del amounts[name]


def _adapt_container(container: Obj, nodes: Sequence[Obj]) -> list[str]:
    changes = []
    variables = container.setdefault("env", [])
    if _is_benchmark(container) and all(one.get("name") != BENCH_LIMITS_VARIABLE for one in variables):
        variables.append({"name": BENCH_LIMITS_VARIABLE, "value": LIMITS})
        changes.append(f"limited to {LIMITS}")
    if hosts := len(other_hosts(container, nodes)):
        variables.insert(0, {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})
        for field in ("command", "args"):
            words = container.get(field) or []
            for index, word in enumerate(words):
                if str(word).startswith(NODES_OPTION):
                    words[index] = NODES_OPTION + ",".join(["$(HOST_IP)"] * hosts)
                elif str(word).startswith(DEVICES_OPTION):
                    words[index] = f"{DEVICES_OPTION}{hosts}"
        changes.append(f"{hosts} ranks on this machine's own address")
    return changes


def _is_benchmark(container: Obj) -> bool:
    """Return whether an image holds a program of ours for torch, which a launcher may start in it."""
    image = SHIPPED.get(image_name(str(container.get("image") or "")))
    return image is not None and "torch" in image.needs


def noted(document: Document, *changes: str) -> Document:
    """Return a document whose note has these changes too."""
    value = copy.deepcopy(document.value)
    notes = value["metadata"].setdefault("annotations", {})
    notes[TRIED_ANNOTATION] = "; ".join(filter(None, [*changes, notes.get(TRIED_ANNOTATION)]))
    return replace(document, value=value)


def note_of(obj: Obj) -> str:
    """Return what a job was tried with, in words; empty for one that runs as it is written."""
    return str((obj["metadata"].get("annotations") or {}).get(TRIED_ANNOTATION) or "")


def torch_containers(documents: Sequence[Document]) -> list[Obj]:
    """Return the containers that run a program of ours which needs torch."""
    return [
        container
        for document in documents
        for _, template in pod_templates(document.value)
        for container in (template.get("spec") or {}).get("containers") or []
        if needs_torch(container)
    ]


def torch_images(documents: Sequence[Document]) -> list[str]:
    """Return the names of the images whose programs need torch."""
    names = [repository(str(one["image"])).removeprefix("docker.io/") for one in torch_containers(documents)]
    return list(dict.fromkeys(names))


def make_absent(cluster: Cluster, documents: Sequence[Document]) -> list[str]:
    """Make what pods name and is not there, empty, and return it in words."""

    async def make(client: ObjectClient) -> list[str]:
        from contextlib import suppress

        from gangline.kube.errors import AlreadyExists

        made = []
        for one in await absent_objects(client, documents):
            with suppress(AlreadyExists):
                await client.create(one.resource, _empty(one))
                made.append(one.title)
        return made

    return cluster.call(make)


def _empty(absent: Absent) -> Obj:
    metadata = {"name": absent.name} | ({"namespace": absent.namespace} if absent.namespace else {})
    obj: Obj = {
        "apiVersion": absent.resource.api_version,
        "kind": absent.resource.kind,
        "metadata": metadata,
    }
    if absent.resource == PERSISTENT_VOLUME_CLAIMS:
        size = {"requests": {"storage": _CLAIM_SIZE}}
        obj["spec"] = {"accessModes": ["ReadWriteMany"], "resources": size}
    return obj


def add_lacking_gpus(cluster: Cluster, documents: Sequence[Document]) -> list[Document]:
    """Add the GPUs that documents lack to the cluster, simulated; return the documents that say so."""
    from gangline.cluster.trials.added_gpus import add_gpus, added

    nodes = [node for node in cluster.call(lambda client: client.list(NODES)).items if not added(node)]
    short = [
        document
        for document in documents
        if (demand := GpuDemand.of(document.value)).shortage(GpuRoom.of(nodes, demand.resource))
    ]
    if not short:
        return list(documents)
    count = add_gpus(cluster, [document.value for document in short])
    words = f"{gpus_in_words(count, 'simulated')} added for it"
    return [noted(one, words) if one in short else one for one in documents]
