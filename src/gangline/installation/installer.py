"""Brings an installation to a cluster: what is missing is made, what is otherwise is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gangline.api.resources import DEPLOYMENTS, MPIJOBS, NAMESPACES, Resource
from gangline.errors import ClusterError, UserError
from gangline.installation.access import Right, missing_rights
from gangline.installation.definitions import install_definitions
from gangline.installation.found import refuse_helms
from gangline.installation.objects import Installation, definitions, objects
from gangline.installation.replaced import OtherOperator, find_operators, put_aside
from gangline.installation.rollout import wait_until_ready
from gangline.kube.discovery import resource_for
from gangline.kube.errors import Conflict, Forbidden, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]
Say = Callable[[str], None]

FIELD_MANAGER = "gangline-install"


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
        replace: write over definitions of others and stop their operators, so that they can be put back.
        force: take over fields that others have changed since.
        dry_run: have the server check everything, and change nothing.
        timeout_s: for the services to become ready.

    Raises:
        ClusterError: a right is missing, somebody else's is in the way, or the services do not become ready.
    """
    wanted = objects(installation)
    await _check_namespace(client, installation)
    others = await _check_others(client, installation, replace=replace)
    await _check_rights(client, wanted, installation, others)
    await refuse_helms(client, installation)
    if dry_run:
        for obj in wanted:
            await _apply(client, obj, say, force=force, dry_run=True)
        return
    if replace:
        await _apply(client, wanted[0], say, force=force)  # the namespace, where it is noted
        await put_aside(client, installation.namespace, others, definitions(installation), say)
    await _bring_definitions(client, installation, say, replace=replace)
    for obj in wanted[1:] if replace else wanted:
        await _apply(client, obj, say, force=force)
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


async def _check_others(
    client: ObjectClient, installation: Installation, *, replace: bool
) -> list[OtherOperator]:
    """Return the operators of others that are to be stopped, and refuse to work beside one."""
    if not installation.has_operator:
        return []
    others = await find_operators(client)
    if others and not replace:
        what = "ask its administrator" if installation.is_namespaced else "--replace stops it"
        raise ClusterError(
            f"nothing is installed: {others[0].title} makes the pods of MPIJobs too",
            hint=f"{what}; jobs go on, and `gangline uninstall` starts it again",
        )
    return others


async def _check_rights(
    client: ObjectClient,
    wanted: Sequence[Obj],
    installation: Installation,
    others: Sequence[OtherOperator],
) -> None:
    rights = {Right("patch", DEPLOYMENTS, other.namespace) for other in others}
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


async def _apply(client: ObjectClient, obj: Obj, say: Say, *, force: bool, dry_run: bool = False) -> None:
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
