"""The ControllerRevisions of a StatefulSet or DaemonSet: one for each template that it has had. Pure.

``kubectl rollout history`` lists them, ``undo`` applies the data of one as a strategic patch.
Source: pkg/controller/history.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from gangline.api.core import ObjectMeta
from gangline.api.resources import CONTROLLER_REVISIONS, Resource
from gangline.cluster.controllers.apps.deployment import HISTORY_DEFAULT, template_hash
from gangline.cluster.controllers.apps.plan import ApiWrite, WorkloadObject
from gangline.cluster.controllers.pod_rules import owner_reference

HASH_LABEL = "controller-revision-hash"
"""Of pods: which revision they are of."""

REVISION_HASH_LABEL = "controller.kubernetes.io/hash"
"""Of the revisions of a StatefulSet."""


class Revisions(msgspec.Struct, frozen=True):
    """The revisions of one object.

    Attributes:
        update: that of its template, made by the steps if need be.
        all: the others that there are, oldest first.
        steps: that make, renumber and forget.
    """

    update: WorkloadObject
    all: tuple[WorkloadObject, ...]
    steps: tuple[ApiWrite, ...]

    def named(self, name: str) -> WorkloadObject | None:
        """Return the revision of a name."""
        return next((one for one in (self.update, *self.all) if one.metadata.name == name), None)


def plan_revisions(
    resource: Resource, owner: WorkloadObject, found: Sequence[WorkloadObject], in_use: Collection[str]
) -> Revisions:
    """Find the revision of the current template, or make it.

    Args:
        resource: the owner's kind.
        owner: whose template it is.
        found: the revisions that it controls.
        in_use: names of those that pods, or the status, still name; they are kept.
    """
    data = _as_go_writes({"spec": {"template": {**owner.template, "$patch": "replace"}}})
    ordered = sorted(found, key=lambda one: one.revision)
    highest = ordered[-1].revision if ordered else 0
    same = [one for one in ordered if one.data == data]
    steps: list[ApiWrite] = []
    if same:
        update = same[-1]
        if update.revision < highest:
            body = {"revision": highest + 1}
            steps.append(
                ApiWrite(verb="patch", resource=CONTROLLER_REVISIONS, meta=update.metadata, body=body)
            )
    else:
        body = _revision(resource, owner, data, highest + 1)
        update = msgspec.convert(body, WorkloadObject)
        steps.append(ApiWrite(verb="create", resource=CONTROLLER_REVISIONS, body=body))
    others = tuple(one for one in ordered if one is not update)
    limit = owner.spec.get("revisionHistoryLimit")
    limit = HISTORY_DEFAULT if limit is None else limit
    idle = [one for one in others if one.metadata.name not in in_use]
    steps += [
        ApiWrite(verb="delete", resource=CONTROLLER_REVISIONS, meta=one.metadata)
        for one in idle[: max(0, len(idle) - limit)]
    ]
    return Revisions(update, others, tuple(steps))


def revision_hash(revision: WorkloadObject) -> str:
    """Return the hash of a revision's template."""
    return revision.metadata.labels.get(HASH_LABEL) or revision.metadata.labels.get(REVISION_HASH_LABEL, "")


def _as_go_writes(data: dict[str, Any]) -> dict[str, Any]:
    """Return data with its keys in order: clients in Go compare the bytes of a revision with their own."""
    ordered: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(data, order="sorted"))
    return ordered


def _revision(resource: Resource, owner: WorkloadObject, data: dict[str, Any], number: int) -> dict[str, Any]:
    meta: ObjectMeta = owner.metadata
    hashed = template_hash(owner.template)
    labels = {
        **((owner.template.get("metadata") or {}).get("labels") or {}),
        HASH_LABEL: hashed,
        REVISION_HASH_LABEL: hashed,
    }
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": f"{meta.name}-{hashed}",
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": {
                key: value
                for key, value in meta.annotations.items()
                if key != "kubectl.kubernetes.io/last-applied-configuration"
            },
            "ownerReferences": [owner_reference(resource, meta)],
        },
        "data": data,
        "revision": number,
    }
