"""``gangline delete``: jobs by name, or what manifests name, and everything that belongs to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.jobs.job_names import complete_job_name
from gangline.cli.options.job_types import qualified, type_option
from gangline.cli.options.target import target_options
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.api.resources import Resource
    from gangline.kube.verbs import ObjectClient


@click.command("delete")
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=complete_job_name)
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="Delete the objects of a manifest."
)
@click.option("--all", "everything", is_flag=True, help="Every job of the namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="With --all: every job of every namespace.")
@click.option("--wait/--no-wait", default=True, help="Wait until pods are gone too.  [default: wait]")
@type_option
@target_options()
def command(
    names: tuple[str, ...],
    files: tuple[str, ...],
    everything: bool,
    all_namespaces: bool,
    wait: bool,
    kind: str,
    target: ClusterTarget,
) -> None:
    """Delete jobs and what belongs to them; unknown names are an error, after the others are deleted."""
    if not (names or files or everything):
        raise UserError(
            "which job?", hint="`gangline list` lists them; --all means every job of the namespace"
        )
    names = tuple(qualified(name, kind) for name in names)
    if kind and everything:
        raise UserError(
            "--type is for names; --all means every job", hint="`gangline list -T mpijob -o name`"
        )
    if all_namespaces and not everything:
        raise UserError("-A needs --all here: names mean one namespace", hint="name it with -n")
    asyncio.run(
        _delete(target, names, files, everything=everything, all_namespaces=all_namespaces, wait=wait)
    )


async def _delete(
    target: ClusterTarget,
    names: tuple[str, ...],
    files: tuple[str, ...],
    *,
    everything: bool,
    all_namespaces: bool,
    wait: bool,
) -> None:
    from gangline.client.jobs.job_lookup import find_job

    unknown: list[UserError] = []
    async with open_client(target) as client:
        found: list[tuple[Resource, dict[str, Any]]] = []
        for name in names:
            try:
                found.append(await find_job(client, name, client.connection.namespace))
            except UserError as error:
                unknown.append(error)
        if everything:
            found += await _every_job(client, None if all_namespaces else client.connection.namespace)
        if files:
            found += await _from_files(client, files)
        await asyncio.gather(*(_delete_one(client, resource, obj, wait=wait) for resource, obj in found))
    if unknown:
        words = "; ".join(error.message for error in unknown)
        raise UserError(words, hint=unknown[0].hint)


async def _every_job(client: ObjectClient, namespace: str | None) -> list[tuple[Resource, dict[str, Any]]]:
    from gangline.client.jobs.job_lookup import list_jobs
    from gangline.workloads.kinds import kind_of

    return [(kind_of(job).resource, job) for job in await list_jobs(client, namespace)]


async def _from_files(client: ObjectClient, files: tuple[str, ...]) -> list[tuple[Resource, dict[str, Any]]]:
    from gangline.client.manifests import in_order, read_manifests
    from gangline.kube.discovery import resource_for
    from gangline.kube.errors import NotFound

    found = []
    for document in reversed(in_order(read_manifests(files))):
        resource = await resource_for(client, document.api_version, document.kind)
        namespace = document.value["metadata"].get("namespace") or client.connection.namespace
        try:
            live = await client.get(resource, document.name, namespace)
        except NotFound:
            continue
        live.setdefault("kind", resource.kind)
        found.append((resource, live))
    return found


async def _delete_one(client: ObjectClient, resource: Resource, obj: dict[str, Any], *, wait: bool) -> None:
    from gangline.client.manifests import WORKLOADS
    from gangline.client.run.create_or_attach import delete_job
    from gangline.kube.errors import NotFound

    metadata = obj["metadata"]
    if wait and obj["kind"] in WORKLOADS:
        await delete_job(client, resource, obj)
    else:
        try:
            await client.delete(
                resource, metadata["name"], metadata.get("namespace"), uid=metadata.get("uid", "")
            )
        except NotFound:
            return
    print(f"{obj['kind'].lower()}/{metadata['name']} deleted")
