"""What an installation has put aside on a cluster, kept so that it can be put back.

An operator of others is scaled to nothing, and a definition written over. Both are noted before in a
ConfigMap beside our services. Jobs stay through both ways: their definition never goes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.resources import CONFIG_MAPS, CRDS, DEPLOYMENTS, PODS, Resource
from gangline.errors import ClusterError
from gangline.installation.definitions import SERVED_WITHIN_S, resource_of
from gangline.installation.objects import PART_OF
from gangline.kube.definitions import CONFLICT_DELAY_S, CONFLICTS_MAX, find_strangers
from gangline.kube.errors import Conflict, Forbidden, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]
Say = Callable[[str], None]

CONFIG_MAP = "gangline-replaced"
_KEY = "replaced.json.gz"
IMAGE_OF_OTHERS = "mpi-operator"
"""Name of the MPI operator's image, in whatever registry."""

STOPPED_WITHIN_S = 60.0
"""An operator's pod has 30 s to end."""

_POLL_S = 0.2


class OtherOperator(msgspec.Struct, frozen=True):
    """A Deployment of somebody else's operator, with the pods that it wants."""

    namespace: str
    name: str
    image: str
    replicas: int

    @property
    def title(self) -> str:
        """Where it is, and what it runs."""
        return f"deployment/{self.name} in {self.namespace} ({self.image})"


class Replaced(msgspec.Struct):
    """What was put aside.

    Attributes:
        operators: with the number of pods that they had.
        definitions: as they were, without what servers write.
    """

    operators: list[OtherOperator] = []
    definitions: list[Obj] = []


async def find_operators(client: ObjectClient) -> list[OtherOperator]:
    """Return running operators of others that make the pods of MPIJobs; none if they may not be listed."""
    try:
        deployments = (await client.list(DEPLOYMENTS)).items
    except Forbidden:
        return []
    return [found for one in deployments if (found := _operator_in(one)) and found.replicas]


def _operator_in(deployment: Obj) -> OtherOperator | None:
    metadata, spec = deployment["metadata"], deployment["spec"]
    for container in spec["template"]["spec"].get("containers") or []:
        image = str(container.get("image") or "")
        # docker.io/mpioperator/mpi-operator:0.8.2@sha256:...
        name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        if name == IMAGE_OF_OTHERS:
            return OtherOperator(metadata["namespace"], metadata["name"], image, spec.get("replicas", 1))
    return None


async def put_aside(
    client: ObjectClient,
    namespace: str,
    operators: Sequence[OtherOperator],
    definitions: Iterable[Obj],
    say: Say,
) -> None:
    """Note what is about to be replaced, and stop the operators.

    Args:
        client: of the cluster.
        namespace: where it is noted.
        operators: of others.
        definitions: ours; those of others that stand in their place are noted.
        say: takes a line for each operator.

    Raises:
        ClusterError: an operator does not end.
    """
    before = await read_replaced(client, namespace)
    names = {crd["metadata"]["name"] for crd in before.definitions}
    strangers = [one.name for one in await find_strangers(client, definitions) if one.name not in names]
    found = [_kept(await client.get(CRDS, name)) for name in strangers]
    known = {(one.namespace, one.name) for one in before.operators}
    more = [one for one in operators if (one.namespace, one.name) not in known]
    if found or more:
        await _write(client, namespace, Replaced([*before.operators, *more], [*before.definitions, *found]))
    for one in operators:
        await _stop(client, one)
        say(f"{one.title} stopped")


def _kept(crd: Obj) -> Obj:
    metadata = {
        key: crd["metadata"][key] for key in ("name", "labels", "annotations") if key in crd["metadata"]
    }
    return {"metadata": metadata, "spec": crd["spec"]}


async def read_replaced(client: ObjectClient, namespace: str) -> Replaced:
    """Return what was noted; nothing where nothing was."""
    try:
        noted = await client.get(CONFIG_MAPS, CONFIG_MAP, namespace)
    except (NotFound, Forbidden):
        return Replaced()
    packed = base64.b64decode(noted["binaryData"][_KEY])
    return msgspec.json.decode(gzip.decompress(packed), type=Replaced)


async def _write(client: ObjectClient, namespace: str, replaced: Replaced) -> None:
    packed = gzip.compress(msgspec.json.encode(replaced), mtime=0)
    note = {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {"name": CONFIG_MAP, "namespace": namespace, "labels": PART_OF},
        "binaryData": {_KEY: base64.b64encode(packed).decode()},
    }
    await client.patch(CONFIG_MAPS, CONFIG_MAP, note, namespace, kind="apply", force=True)


async def _stop(client: ObjectClient, operator: OtherOperator) -> None:
    live = await client.patch(DEPLOYMENTS, operator.name, {"spec": {"replicas": 0}}, operator.namespace)
    labels = live["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    try:
        async with asyncio.timeout(STOPPED_WITHIN_S):
            while (await client.list(PODS, operator.namespace, label_selector=selector)).items:
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise ClusterError(
            f"pods of {operator.title} are still there {STOPPED_WITHIN_S:g} s after it was scaled to 0",
            hint=f"`kubectl -n {operator.namespace} get pods` shows them; the same command goes on from here",
        ) from None


async def put_back(client: ObjectClient, replaced: Replaced, say: Say) -> None:
    """Write the definitions back as they were, and start the operators; what is gone meanwhile stays so."""
    for crd in replaced.definitions:
        if await _put_definition_back(client, crd):
            say(f"customresourcedefinition/{crd['metadata']['name']} put back")
    for one in replaced.operators:
        try:
            await client.patch(DEPLOYMENTS, one.name, {"spec": {"replicas": one.replicas}}, one.namespace)
        except NotFound:
            continue
        say(f"{one.title} started again")


async def _put_definition_back(client: ObjectClient, crd: Obj) -> bool:
    name, spec = crd["metadata"]["name"], crd["spec"]

    def as_it_was(live: Obj) -> Obj:
        metadata = {
            key: value for key, value in live["metadata"].items() if key not in ("labels", "annotations")
        }
        return {**live, "metadata": metadata | crd["metadata"], "spec": spec}

    try:
        live = await client.get(CRDS, name)
        if set(live["status"]["storedVersions"]) - {version["name"] for version in spec["versions"]}:
            await _store_as(client, live, resource_of(crd))
        await _change(client, name, as_it_was)
    except NotFound:
        return False
    return True


async def _change(client: ObjectClient, name: str, change: Callable[[Obj], Obj]) -> None:
    for left in reversed(range(CONFLICTS_MAX)):
        try:
            await client.update(CRDS, change(await client.get(CRDS, name)))
        except Conflict:  # a server writes its status meanwhile
            if not left:
                raise
            await asyncio.sleep(CONFLICT_DELAY_S)
        else:
            return


async def _store_as(client: ObjectClient, live: Obj, resource: Resource) -> None:
    """Have all objects of a kind stored in another of its versions, so that the one before may go.

    Source: Kubernetes, "Versions in CustomResourceDefinitions", on objects and a new stored version.
    """

    def storing(crd: Obj) -> Obj:
        versions = [
            version | {"storage": version["name"] == resource.version} for version in crd["spec"]["versions"]
        ]
        return {**crd, "spec": crd["spec"] | {"versions": versions}}

    name = live["metadata"]["name"]
    before = await _stored_in(client, resource)
    await _change(client, name, storing)
    if before and resource_of(live).version != resource.version:
        await _until_stored_otherwise(client, resource, before)
    for one in (await client.list(resource)).items:
        with contextlib.suppress(NotFound):
            await client.patch(resource, one["metadata"]["name"], {}, one["metadata"].get("namespace"))
    stored = {"status": {"storedVersions": [resource.version]}}
    await client.patch(CRDS, name, stored, subresource="status")


async def _until_stored_otherwise(client: ObjectClient, resource: Resource, before: str) -> None:
    try:
        async with asyncio.timeout(SERVED_WITHIN_S):
            while before == await _stored_in(client, resource):
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise ClusterError(
            f"{resource.kind} is not stored as {resource.version} {SERVED_WITHIN_S:g} s after its definition "
            "was changed so",
            hint="the same command goes on from here",
        ) from None


async def _stored_in(client: ObjectClient, resource: Resource) -> str:
    """Return what stands for the version that objects are stored in now, as the server itself tells it."""
    served = await client.request("GET", f"/apis/{resource.group}/{resource.version}")
    return next(
        (one.get("storageVersionHash", "") for one in served["resources"] if one["name"] == resource.plural),
        "",
    )
