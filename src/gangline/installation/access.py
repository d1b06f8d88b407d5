"""What the user of a client may do: asked of the API server before anything is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from gangline.api.resources import ACCESS_REVIEWS, Resource

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient


class Right(msgspec.Struct, frozen=True, order=True):
    """A verb on a kind, in one namespace or, where it is empty, at the cluster's scope."""

    verb: str
    resource: Resource
    namespace: str = ""

    def __str__(self) -> str:
        # create roles.rbac.authorization.k8s.io in namespace team-a
        kind = f"{self.resource.plural}.{self.resource.group}".rstrip(".")
        return f"{self.verb} {kind}" + (f" in namespace {self.namespace}" if self.namespace else "")


async def missing_rights(client: ObjectClient, wanted: Iterable[Right]) -> list[Right]:
    """Return those that the user does not have. One request for each, which every user may send."""

    async def is_missing(right: Right) -> bool:
        asked = {
            "verb": right.verb,
            "group": right.resource.group,
            "resource": right.resource.plural,
            "namespace": right.namespace,
        }
        review = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": asked},
        }
        answer = await client.create(ACCESS_REVIEWS, review)
        return not answer["status"].get("allowed")

    rights = sorted(set(wanted))
    missing = await asyncio.gather(*(is_missing(right) for right in rights))
    return [right for right, lacks in zip(rights, missing, strict=True) if lacks]
