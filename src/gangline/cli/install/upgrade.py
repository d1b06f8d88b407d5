"""``gangline upgrade``: what is installed on a cluster, in the version of this program."""

from __future__ import annotations

import asyncio

import click

from gangline.cli.install.install import check_is_no_own, installation_of, rollout_options
from gangline.cli.options.target import target_options
from gangline.client.target import ClusterTarget, open_client


@click.command("upgrade")
@rollout_options
@target_options()
def command(image_prefix: str, force: bool, dry_run: bool, timeout: int, target: ClusterTarget) -> None:
    """Bring what is installed on a cluster to this version: the same services, from the same registry.

    Jobs go on. What the version before had and this one has not is taken away.
    """
    check_is_no_own(target)
    asyncio.run(_upgrade(target, image_prefix, force=force, dry_run=dry_run, timeout_s=float(timeout)))


async def _upgrade(
    target: ClusterTarget, image_prefix: str, *, force: bool, dry_run: bool, timeout_s: float
) -> None:
    from gangline.installation.upgrade import upgrade

    asked = installation_of(target, operator_only=False, image_prefix=image_prefix)
    async with open_client(target) as client:
        await upgrade(client, asked, print, force=force, dry_run=dry_run, timeout_s=timeout_s)
