"""Brings an installation to a cluster: what is missing is made, what is otherwise is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gangline.api.resources import DEPLOYMENTS, MPIJOBS, NAMESPACES, Resource
from gangline.errors import ClusterError, UserError
from gangline.installation.access import Right, missing_rights
from gangline.installation.definitions import install_definitions
from gangline.installation.found import find_installed
from gangline.installation.objects import Installation, definitions, objects
from gangline.installation.rollout import wait_until_ready
from gangline.kube.discovery import resource_for
from gangline.kube.errors import Conflict, Forbidden, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]
Say = Callable[[str], None]

FIELD_MANAGER = "gangline-install"

HELM_RELEASE = "meta.helm.sh/release-name"


async def install(
    client: ObjectClient,
    installation: Installation,
    say: Say,
    *,
    replace: bool = False,
    force: bool = False,
    dry_run: bool = False,
    timeout_s: float,
) -> None:
    """Make what is missing, change what is otherwise, and wait until the services are ready.

    Args:
        client: of the cluster.
        installation: what is wanted.
        say: takes a line for each object, and for what is waited for.
        replace: write over definitions of others.
        force: take over fields that others have changed since.
        dry_run: have the server check everything, and change nothing.
        timeout_s: for the services to become ready.

    Raises:
        ClusterError: a right is missing, somebody else's is in the way, or the services do not become ready.
    """
    wanted = objects(installation)
    await _check_namespace(client, installation)
    await _check_rights(client, wanted, installation)
    await refuse_helms(client, installation)
    if not dry_run:
        await _bring_definitions(client, installation, say, replace=replace)
    for obj in wanted:
        await _apply(client, obj, say, force=force, dry_run=dry_run)
    if not dry_run:
        deployments = [obj for obj in wanted if obj["kind"] == DEPLOYMENTS.kind]
        await wait_until_ready(client, deployments, say, timeout_s=timeout_s)


async def _check_namespace(client: ObjectClient, installation: Installation) -> None:
    """Refuse a namespace that is not there: it would be the users' own."""
    if not installation.is_namespaced:
        return
    try:
        await client.get(NAMESPACES, installation.namespace)
    except Forbidden:  # it is found out
        return
    except NotFound:
        raise UserError(
            f"the cluster has no namespace `{installation.namespace}`",
            hint=f"kubectl create namespace {installation.namespace}",
        ) from None


async def _check_rights(client: ObjectClient, wanted: Sequence[Obj], installation: Installation) -> None:
    rights = set()
    for obj in wanted:
        resource = await resource_for(client, obj["apiVersion"], obj["kind"])
        place = obj["metadata"].get("namespace", "")
        rights |= {Right(verb, resource, place) for verb in ("get", "create", "patch")}
    if missing := await missing_rights(client, rights):
        otherwise = "" if installation.is_namespaced else "; --namespace NAME needs rights in one namespace"
        raise ClusterError(
            f"nothing is installed: you may not {', '.join(map(str, missing))}",
            hint=f"ask an administrator for these rights, or to install it{otherwise}",
        )


async def _bring_definitions(
    client: ObjectClient, installation: Installation, say: Say, *, replace: bool
) -> None:
    try:
        await install_definitions(client, definitions(installation), say, replace=replace)
    except Forbidden as error:
        if installation.is_namespaced and await _is_served(client, MPIJOBS, installation.namespace):
            return
        raise ClusterError(
            f"nothing is installed: {error.message}",
            hint="an administrator installs the definitions once: gangline crds --install",
        ) from error


async def _is_served(client: ObjectClient, resource: Resource, namespace: str) -> bool:
    try:
        await client.any(resource, namespace)
    except NotFound:
        return False
    return True


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


async def _apply(client: ObjectClient, obj: Obj, say: Say, *, force: bool, dry_run: bool) -> None:
    resource = await resource_for(client, obj["apiVersion"], obj["kind"])
    metadata = obj["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace")
    try:
        before = await client.get(resource, name, namespace)
    except NotFound:
        before = None
    title = f"{resource.kind.lower()}/{name}"
    try:
        after = await client.patch(
            resource,
            name,
            obj,
            namespace,
            kind="apply",
            field_manager=FIELD_MANAGER,
            force=force,
            dry_run=dry_run,
        )
    except Conflict as error:
        raise ClusterError(
            f"{title} was changed by others: {error.message}",
            hint="change it back, or take these fields over with --force",
        ) from error
    except NotFound:
        if not dry_run:
            raise
        after = obj  # its namespace would have been made before
    verb = "created" if before is None else "unchanged" if _is_same(before, after) else "configured"
    say(f"{title} {verb}" + (" (dry run)" if dry_run else ""))


def _is_same(before: Obj, after: Obj) -> bool:
    """Return whether nothing has changed but who has written what and when."""

    def said(obj: Obj) -> Obj:
        metadata = {key: value for key, value in obj["metadata"].items() if key not in _WRITTEN}
        return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}

    return said(before) == said(after)


_WRITTEN = ("managedFields", "resourceVersion", "generation")
