"""Discovery documents: which groups, versions and kinds are served, in the aggregated and the legacy form.

Both forms are made from the same rows; the aggregated one answers everything in two requests and is what
kubectl asks for, the legacy one is what most Python clients read.
Source: apidiscovery.k8s.io/v2 APIGroupDiscoveryList; meta/v1 APIGroupList, APIResourceList.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gangline.cluster.server.resources import SUBRESOURCE_VERBS, ServedResource, preferred_first

_RESPONSE_KINDS = {
    "scale": ("autoscaling", "v1", "Scale"),
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "binding": ("", "v1", "Binding"),
    "attach": ("", "v1", "PodAttachOptions"),
    "exec": ("", "v1", "PodExecOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
}
"""Group, version and kind that a subresource speaks where that is not the kind it belongs to."""


def aggregated(rows: Iterable[ServedResource], *, core: bool, version: str = "v2") -> dict[str, Any]:
    """Return the APIGroupDiscoveryList of ``/api`` (``core``) or of ``/apis``.

    Args:
        rows: everything that is served.
        core: whether to answer for the group without a name.
        version: version of the document, ``v2`` or ``v2beta1``; the content is the same.

    Cost: O(rows); the caller keeps the answer until the rows change.
    """
    groups = _by_group(row for row in rows if (row.resource.group == "") is core)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {
                        "version": name,
                        "freshness": "Current",
                        "resources": [_aggregated_resource(row) for row in members],
                    }
                    for name, members in versions.items()
                ],
            }
            for group, versions in groups.items()
        ],
    }


def api_versions(server_address: str) -> dict[str, Any]:
    """Return the legacy answer of ``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    }


def api_group_list(rows: Iterable[ServedResource]) -> dict[str, Any]:
    """Return the legacy answer of ``/apis``: every named group with its versions."""
    groups = _by_group(row for row in rows if row.resource.group)
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(group, versions) for group, versions in groups.items()],
    }


def api_group(rows: Iterable[ServedResource], group: str) -> dict[str, Any] | None:
    """Return the legacy answer of ``/apis/GROUP``, None where nothing of the group is served."""
    groups = _by_group(row for row in rows if group and row.resource.group == group)
    if not groups:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}


def api_resource_list(rows: Iterable[ServedResource], group: str, version: str) -> dict[str, Any] | None:
    """Return the legacy answer of ``/api/v1`` or ``/apis/GROUP/VERSION``, None where it is not served."""
    members = [row for row in rows if (row.resource.group, row.resource.version) == (group, version)]
    if not members:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": members[0].resource.api_version,
        "resources": [entry for row in members for entry in _legacy_resources(row)],
    }


def _by_group(rows: Iterable[ServedResource]) -> dict[str, dict[str, list[ServedResource]]]:
    """Return group -> version -> rows; groups in the order of the rows, the preferred version first."""
    groups: dict[str, dict[str, list[ServedResource]]] = {}
    for row in rows:
        groups.setdefault(row.resource.group, {}).setdefault(row.resource.version, []).append(row)
    return {group: preferred_first(versions) for group, versions in groups.items()}


def _group(group: str, versions: dict[str, list[ServedResource]]) -> dict[str, Any]:
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _aggregated_resource(row: ServedResource) -> dict[str, Any]:
    resource = row.resource
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": _kind(resource.group, resource.version, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    if row.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": _kind(*_subresource_kind(row, name)),
                "verbs": list(SUBRESOURCE_VERBS[name]),
            }
            for name in sorted(row.subresources)
        ]
    return entry


def _legacy_resources(row: ServedResource) -> Sequence[dict[str, Any]]:
    resource = row.resource
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": row.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    entries = [entry]
    for name in sorted(row.subresources):
        group, version, kind = _subresource_kind(row, name)
        item: dict[str, Any] = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": list(SUBRESOURCE_VERBS[name]),
        }
        if (group, version) != (resource.group, resource.version):
            item |= {"group": group, "version": version}
        entries.append(item)
    return entries


def _subresource_kind(row: ServedResource, name: str) -> tuple[str, str, str]:
    resource = row.resource
    return _RESPONSE_KINDS.get(name, (resource.group, resource.version, resource.kind))


def _kind(group: str, version: str, kind: str) -> dict[str, str]:
    return {"group": group, "version": version, "kind": kind}
