"""What of an installation is on a cluster, found by its label, whoever has applied it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from gangline.errors import UserError
from gangline.installation.objects import PART_OF, Installation
from gangline.kube.errors import Forbidden

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

HELM_RELEASE = "meta.helm.sh/release-name"
SELECTOR = ",".join(f"{key}={value}" for key, value in PART_OF.items())
_INSIDE = (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    RESOURCE_QUOTAS,
    CONFIG_MAPS,
)
_OUTSIDE = (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES)
"""Kinds of an installation's objects, in the order in which they are deleted."""


class Found(msgspec.Struct, frozen=True):
    """An object of a cluster, and its kind."""

    resource: Resource
    value: Obj

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return str(self.value["metadata"]["name"])

    @property
    def title(self) -> str:
        """As kubectl prints it: ``deployment/NAME``."""
        return f"{self.resource.kind.lower()}/{self.name}"


async def find_installed(client: ObjectClient, installation: Installation) -> list[Found]:
    """Return the objects of an installation in the order in which they are to be deleted.

    They are found by their label, whoever has applied them. What the user may not list is passed over.
    """
    places: list[tuple[Resource, str | None]] = [(resource, installation.namespace) for resource in _INSIDE]
    if not installation.is_namespaced:
        places += [(resource, None) for resource in _OUTSIDE]

    async def listed(resource: Resource, namespace: str | None) -> list[Found]:
        try:
            items = (await client.list(resource, namespace, label_selector=SELECTOR)).items
        except Forbidden:
            return []
        return [Found(resource, item) for item in items]

    found = await asyncio.gather(*(listed(*place) for place in places))
    mine = [one for some in found for one in some]
    return [one for one in mine if one.resource != NAMESPACES or one.name == installation.namespace]


async def refuse_helms(client: ObjectClient, installation: Installation) -> None:
    """Leave what a Helm release has made to Helm.

    Raises:
        UserError: with the release.
    """
    for found in await find_installed(client, installation):
        notes = found.value["metadata"].get("annotations") or {}
        if release := notes.get(HELM_RELEASE):
            raise UserError(
                f"{found.title} in {installation.namespace} belongs to the Helm release `{release}`",
                hint=f"helm upgrade {release} CHART, or helm uninstall {release}, in that namespace",
            )


def installation_in(found: Sequence[Found], asked: Installation) -> Installation | None:
    """Return what is installed, with the images of this version; None where no service is.

    Args:
        found: objects of an installation.
        asked: its namespace. A registry that it names counts; otherwise that of the images stays.
    """
    images = {
        one.name: one.value["spec"]["template"]["spec"]["containers"][0]["image"]
        for one in found
        if one.resource == DEPLOYMENTS
    }
    if not images:
        return None
    # registry.example.com:5000/ml/gangline:0.1.0 or .../gangline@sha256:...
    prefix = next(iter(images.values())).rpartition("/")[0]
    return msgspec.structs.replace(
        asked,
        has_operator="gangline-operator" in images,
        has_scheduler="gangline-scheduler" in images,
        image_prefix=asked.image_prefix or prefix,
    )
