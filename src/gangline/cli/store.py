"""``gangline store export``: the objects of the one-machine cluster as manifests, read from its file.

For a store that is damaged: the server does not start on it, and names this command. It works beside a
running server, too.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from gangline.api.resources import (
    CONFIG_MAPS,
    CRDS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
)
from gangline.cli.options.target import cluster_option
from gangline.cli.subcommands import Subcommands
from gangline.client.home import usable_paths
from gangline.errors import UserError
from gangline.units import plural

_MADE_BY_THE_CLUSTER = frozenset(
    resource.kind for resource in (EVENTS, NODES, LEASES, ENDPOINTS, ENDPOINT_SLICES)
)
_COLLECTIONS_FIRST = tuple(f"{resource.group}/{resource.plural}" for resource in (NAMESPACES, CRDS))
_SYSTEM_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_ENDED = frozenset({"Complete", "Failed", "Succeeded"})
_SERVER_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
"""Of metadata: what a server fills in."""


@click.group("store", cls=Subcommands)
def command() -> None:
    """Look into the file in which the one-machine cluster keeps its objects."""


@command.command("export", short_help="print what can be read of it as manifests")
@click.option("--all", "everything", is_flag=True, help="Every object, as it is, with its status.")
@cluster_option
def export(everything: bool, cluster: str) -> int:
    """Print the objects as YAML, also those of a store that is damaged; exit code 1 when some cannot be read.

    Without --all: what a new cluster can be given by `gangline apply`. Left out is what clusters and
    controllers make themselves, and what has run: pods on nodes, jobs that have ended.
    """
    from gangline.api.codec import dump_yaml
    from gangline.cluster.server.store.salvage import salvage

    paths = usable_paths(cluster)
    try:
        found = salvage(paths.store)
    except OSError as error:
        raise UserError(f"cannot read the store `{paths.store}`: {error.strerror}") from error
    objects = [found.objects[key] for key in sorted(found.objects, key=_order)]
    if not everything:
        objects = [as_manifest(obj) for obj in objects if is_for_a_new_cluster(obj)]
    print(dump_yaml(*objects), end="")
    lines = [f"{plural(len(objects), 'object')} of {len(found.objects)} readable ones written"]
    if found.problem:
        lines.append(
            f"`{paths.store}` is damaged ({found.problem}); what was found page by page is among them, "
            "objects that were deleted shortly before may be, too"
        )
    lines += [f"cannot read {'/'.join(part for part in key if part)}" for key in found.unreadable]
    print("\n".join(lines), file=sys.stderr)
    return 1 if found.problem or found.unreadable else 0


def is_for_a_new_cluster(obj: dict[str, Any]) -> bool:
    """Whether an object is a user's own, and would not run a second time if it were created again."""
    meta, kind = obj["metadata"], str(obj.get("kind"))
    name = str(meta["name"])
    if kind in _MADE_BY_THE_CLUSTER or meta.get("ownerReferences") or "deletionTimestamp" in meta:
        return False
    if kind == CRDS.kind:
        return name not in _own_definitions()
    if (obj.get("spec") or {}).get("nodeName"):  # a pod that runs, or has run
        return False
    made = {
        NAMESPACES.kind: _SYSTEM_NAMESPACES,
        SERVICE_ACCOUNTS.kind: {"default"},
        CONFIG_MAPS.kind: {"kube-root-ca.crt"},
        PRIORITY_CLASSES.kind: {"system-cluster-critical", "system-node-critical"},
    }
    conditions = (obj.get("status") or {}).get("conditions") or []
    has_ended = any(one.get("type") in _ENDED and one.get("status") == "True" for one in conditions)
    return name not in made.get(kind, ()) and not has_ended


def as_manifest(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object as a manifest that creates it anew: without what the server filled in."""
    meta = {key: value for key, value in obj["metadata"].items() if key not in _SERVER_FIELDS}
    head = {"apiVersion": obj.get("apiVersion", ""), "kind": obj.get("kind", ""), "metadata": meta}
    return head | {key: value for key, value in obj.items() if key not in (*head, "status")}


def _own_definitions() -> set[str]:
    from gangline.api.crds import crds, gang_crds

    return {crd["metadata"]["name"] for crd in (*crds(), *gang_crds())}


def _order(key: tuple[str, str, str]) -> tuple[bool, tuple[str, str, str]]:
    """Namespaces and definitions first: the others need them."""
    return (key[0] not in _COLLECTIONS_FIRST, key)
