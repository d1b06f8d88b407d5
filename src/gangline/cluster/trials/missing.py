"""What the objects of files ask for and this machine lacks: all of it, found before anything is created."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.dns_names import is_dns_1123_label
from gangline.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from gangline.cluster.images.local_images import image_name
from gangline.cluster.images.program_check import needs_of
from gangline.cluster.images.shipped_images import SHIPPED
from gangline.cluster.trials.added_gpus import added
from gangline.workloads.capacity import gang_never_fits, gang_requests, never_fits, pod_requests
from gangline.workloads.gpu_demand import GpuDemand, GpuRoom
from gangline.workloads.kinds import pod_templates
from gangline.workloads.requests import GPU, counts_as_gpu

if TYPE_CHECKING:
    from gangline.api.codec import Document
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]
_WORDS = {
    NAMESPACES.kind: "namespace",
    SERVICE_ACCOUNTS.kind: "service account",
    PERSISTENT_VOLUME_CLAIMS.kind: "volume claim",
    SECRETS.kind: "secret",
    CONFIG_MAPS.kind: "config map",
}


class Absent(msgspec.Struct, frozen=True):
    """An object that pods name and that is not there.

    Attributes:
        resource: its kind.
        namespace: empty for a namespace itself.
        name: its own.
        keys: those of a secret or config map that pods cannot start without.
    """

    resource: Resource
    namespace: str
    name: str
    keys: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """``volume claim `data` ``."""
        return f"{_WORDS[self.resource.kind]} `{self.name}`"


class Missing(msgspec.Struct, frozen=True):
    """One thing that is missing.

    Attributes:
        what: in words.
        remedy: what ``--try`` does about it; empty where it can do nothing.
        way: what else helps.
        is_amount: whether it is there, and not enough of it.
    """

    what: str
    remedy: str = ""
    way: str = ""
    is_amount: bool = False


def find_missing(
    documents: Sequence[Document],
    nodes: Sequence[Obj],
    absent: Sequence[Absent],
    image_problem: Callable[[Obj], str],
) -> list[Missing]:
    """Return all that is missing. Pure but for what ``image_problem`` looks at.

    Args:
        documents: of the files, checked.
        nodes: of the cluster.
        absent: see ``absent_objects``.
        image_problem: returns why a container's image cannot be used, and a hint on a second line.
    """
    found = [one for document in documents for one in _of_document(document, nodes, image_problem)]
    for one in absent:
        remedy = "" if one.keys else f"empty {_WORDS[one.resource.kind]}s"
        keys = f" with {', '.join(f'`{key}`' for key in one.keys)}" if one.keys else ""
        word = one.resource.kind.lower()
        found.append(
            Missing(f"{one.title}{keys} is not there", remedy, f"`kubectl create {word}`" if keys else "")
        )
    return list(dict.fromkeys(found))


def _of_document(
    document: Document, nodes: Sequence[Obj], image_problem: Callable[[Obj], str]
) -> Iterator[Missing]:
    title = f"{document.kind} `{document.name}`"
    if document.kind == PODS.kind and not all(is_dns_1123_label(part) for part in document.name.split(".")):
        yield Missing(
            f"{title}: no cluster takes this name (a-z, 0-9, `-` and `.`)",
            f"the name `{valid_name(document.name)}`",
        )
    demand = GpuDemand.of(document.value)
    own = [node for node in nodes if not added(node)]  # what is there for other runs goes with them
    if shortage := demand.shortage(GpuRoom.of(own, demand.resource)):
        yield Missing(
            f"{title}: {shortage}", "simulated GPUs" if demand.resource == GPU else "", is_amount=True
        )
    templates = pod_templates(document.value)
    amounts = [(_without_gpus(pod_requests(one.get("spec") or {}))) for _, one in templates]
    gang = [(_without_gpus(one), count) for one, count in gang_requests(document.value)]
    for problem in dict.fromkeys(
        [*(never_fits(one, nodes) for one in amounts), gang_never_fits(gang, nodes)]
    ):
        if problem:
            yield Missing(
                f"{title}: it asks for {problem}", "no requests of cores and memory", is_amount=True
            )
    for path, template in templates:
        spec = template.get("spec") or {}
        if (chosen := spec.get("nodeSelector") or {}) and not any(_is_chosen(node, chosen) for node in nodes):
            labels = ", ".join(f"{key}={value}" for key, value in chosen.items())
            yield Missing(f"{title}: no node has the labels {labels}", "any node")
        for field in ("initContainers", "containers"):
            for index, container in enumerate(spec.get(field) or []):
                place = document.locate(f"{path}spec.{field}[{index}].image")
                yield from _of_container(container, place, nodes, image_problem)


def _of_container(
    container: Obj, place: str, nodes: Sequence[Obj], image_problem: Callable[[Obj], str]
) -> Iterator[Missing]:
    image = str(container.get("image") or "")
    if problem := image_problem(container):
        rule, _, hint = problem.partition("\n")
        yield Missing(f"image {image}: {rule} at {place}", "torch" if needs_torch(container) else "", hint)
    if others := other_hosts(container, nodes):
        yield Missing(f"no node has the address {' or '.join(others)}", "this machine's own address")


def needs_torch(container: Obj) -> bool:
    """Return whether a container runs a program of ours that needs torch."""
    words = [str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]]
    image = SHIPPED.get(image_name(str(container.get("image") or "")))
    start = str(container.get("workingDir") or "") or (image.working_dir if image else "")
    return image is not None and "torch" in needs_of(str(container.get("image")), words, start)


def other_hosts(container: Obj, nodes: Sequence[Obj]) -> list[str]:
    """Return the addresses of another cluster's nodes that NetApp's ``run.py`` is given."""
    known = {
        str(address.get("address"))
        for node in nodes
        for address in (node.get("status") or {}).get("addresses") or []
    }
    if not image_name(str(container.get("image") or "")).startswith("netapp/"):
        return []
    return [
        host
        for word in [*(container.get("command") or []), *(container.get("args") or [])]
        if str(word).startswith(NODES_OPTION)
        for host in str(word).removeprefix(NODES_OPTION).split(",")
        if host not in known and "$(" not in host
    ]


NODES_OPTION = "--nodes="


def valid_name(name: str) -> str:
    """Return a name with what no cluster takes replaced by dashes."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower()).strip(
        "-"
    )


def _without_gpus(amounts: Any) -> Any:
    return {name: amount for name, amount in amounts.items() if not counts_as_gpu(name)}


def _is_chosen(node: Obj, wanted: Obj) -> bool:
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


async def absent_objects(client: ObjectClient, documents: Sequence[Document]) -> list[Absent]:
    """Return the objects that pods of the documents name and that are neither there nor in the files."""
    from gangline.kube.errors import NotFound

    own = {(document.kind, document.name) for document in documents}
    found = []
    for one in dict.fromkeys(one for document in documents for one in _named(document.value)):
        if (one.resource.kind, one.name) in own:
            continue
        try:
            await client.get(one.resource, one.name, one.namespace or None)
        except NotFound:
            found.append(one)
    return found


def _named(obj: Obj) -> Iterator[Absent]:
    namespace = str((obj.get("metadata") or {}).get("namespace") or "default")
    templates = pod_templates(obj)
    if templates and namespace != "default":
        yield Absent(NAMESPACES, "", namespace)
    for _, template in templates:
        spec = template.get("spec") or {}
        account = spec.get("serviceAccountName") or spec.get("serviceAccount")
        if account not in (None, "", "default"):
            yield Absent(SERVICE_ACCOUNTS, namespace, str(account))
        for volume in spec.get("volumes") or []:
            for source in (volume, *((volume.get("projected") or {}).get("sources") or [])):
                yield from _of_source(source, namespace)
        for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
            yield from _of_variables(container, namespace)


def _of_source(volume: Obj, namespace: str) -> Iterator[Absent]:
    for field, resource, name in (
        ("persistentVolumeClaim", PERSISTENT_VOLUME_CLAIMS, "claimName"),
        ("secret", SECRETS, "secretName"),
        ("configMap", CONFIG_MAPS, "name"),
    ):
        source = volume.get(field) or {}
        named = source.get(name) or source.get("name")
        if named and not source.get("optional"):
            keys = _keys(str(item.get("key")) for item in source.get("items") or [])
            yield Absent(resource, namespace, str(named), keys)


def _of_variables(container: Obj, namespace: str) -> Iterator[Absent]:
    for one in container.get("envFrom") or []:
        for field, resource in (("secretRef", SECRETS), ("configMapRef", CONFIG_MAPS)):
            if (source := one.get(field)) and not source.get("optional"):
                yield Absent(resource, namespace, str(source.get("name")))
    for one in container.get("env") or []:
        for field, resource in (("secretKeyRef", SECRETS), ("configMapKeyRef", CONFIG_MAPS)):
            source = (one.get("valueFrom") or {}).get(field)
            if source and not source.get("optional"):
                yield Absent(resource, namespace, str(source.get("name")), _keys([str(source.get("key"))]))


def _keys(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(keys))
