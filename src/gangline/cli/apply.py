"""``gangline apply``: create or change objects without waiting for jobs."""

from __future__ import annotations

import asyncio

import click

from gangline.cli.options.target import target_options
from gangline.cli.output import say
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import UserError


@click.command("apply")
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("-f", "--filename", "more", multiple=True, metavar="FILE", hidden=True)
@click.option("--dry-run", is_flag=True, help="Let the server check everything, change nothing.")
@target_options()
def command(files: tuple[str, ...], more: tuple[str, ...], dry_run: bool, target: ClusterTarget) -> None:
    """Create or change the objects of manifests; `-` reads standard input.

    The one-machine cluster is started, and kept, if it is not up.
    """
    from gangline.cli.options.images import image_check_of
    from gangline.client.manifests import check_manifests, read_manifests, with_namespace

    if not (files or more):
        raise UserError("nothing to apply", hint="gangline apply FILE...")
    documents = read_manifests([*files, *more])
    if target.is_local:
        from gangline.cluster.daemon.cluster import Cluster

        documents = with_namespace(documents, target.namespace or "default")
        check_manifests(documents, is_local=True, image_problem=image_check_of(target), say=say)
        if not dry_run:
            Cluster(target.paths).ensure_up(keep=True, say=say)
    else:
        check_manifests(documents, is_local=False, say=say)
    asyncio.run(_apply(documents, target, dry_run=dry_run))


async def _apply(documents: list, target: ClusterTarget, *, dry_run: bool) -> None:  # type: ignore[type-arg]
    from gangline.client.manifests import in_order
    from gangline.kube.apply import apply
    from gangline.kube.discovery import resource_for

    async with open_client(target) as client:
        for document in in_order(documents):
            resource = await resource_for(client, document.api_version, document.kind)
            title = f"{document.kind.lower()}/{document.name}"
            if dry_run:
                metadata = document.value["metadata"]
                body = {**document.value, "metadata": {**metadata}}
                await client.patch(
                    resource,
                    document.name,
                    body,
                    metadata.get("namespace"),
                    kind="apply",
                    dry_run=True,
                    force=True,
                )
                print(f"{title} checked")
                continue
            verb, _ = await apply(client, resource, document.value)
            print(f"{title} {verb}")
