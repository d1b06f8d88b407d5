"""Brings our custom resource definitions to a cluster, and waits until it serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gangline.api.resources import MPIJOBS, TRAINING_JOBS, Resource
from gangline.errors import ClusterError
from gangline.kube.definitions import ensure
from gangline.kube.errors import NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

SERVED_WITHIN_S = 30.0
"""How long an installed kind may take until the server has it."""


async def install_definitions(
    client: ObjectClient, definitions: Sequence[Obj], say: Callable[[str], None], *, replace: bool
) -> None:
    """Write the definitions where no others stand: MPIJobs need ours, a gang's may be anybody's.

    TFJobs and PyTorchJobs whose definition is the training operator's are its own, and stay so.

    Raises:
        ClusterError: somebody else's definition of MPIJobs stands there.
    """
    for crd in definitions:
        name, resource = crd["metadata"]["name"], resource_of(crd)
        verb, verdict = await ensure(client, crd, replace=replace and resource not in TRAINING_JOBS)
        if verdict is not None and verb == "left" and resource == MPIJOBS:
            raise ClusterError(
                f"customresourcedefinition/{name} is left as it is: {verdict.message}",
                hint="jobs written for it may not fit Gangline's; `gangline crds --install --replace` writes "
                "Gangline's over it",
            )
        await _until_served(client, crd)
        word = f"left as it is, {verdict.owner}" if verdict and verb == "left" else verb
        say(f"customresourcedefinition/{name} {word}")


def resource_of(crd: Obj) -> Resource:
    """Return where the objects of a definition live, in the version that is stored."""
    names, spec = crd["spec"]["names"], crd["spec"]
    version = next(one["name"] for one in spec["versions"] if one["storage"])
    return Resource(spec["group"], version, names["plural"], names["kind"], spec["scope"] == "Namespaced")


async def _until_served(client: ObjectClient, crd: Obj) -> None:
    """Wait until the server has the version of the kind that we use."""
    resource = resource_of(crd)
    try:
        async with asyncio.timeout(SERVED_WITHIN_S):
            while True:
                try:
                    await client.any(resource)
                    return
                except NotFound:
                    await asyncio.sleep(0.05)
    except TimeoutError:
        raise ClusterError(
            f"the cluster does not serve {resource.kind} of {resource.api_version} "
            f"{SERVED_WITHIN_S:g} s after its definition {crd['metadata']['name']} was installed",
            hint=f"see why with `kubectl describe crd {crd['metadata']['name']}`",
        ) from None
