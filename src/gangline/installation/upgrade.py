"""Brings what is installed to this version, and takes away what this version no longer has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gangline.api.resources import CONFIG_MAPS
from gangline.errors import UserError
from gangline.installation.found import find_installed, installation_in
from gangline.installation.installer import install
from gangline.installation.objects import Installation, objects
from gangline.installation.removal import delete_all

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient


async def upgrade(
    client: ObjectClient,
    asked: Installation,
    say: Callable[[str], None],
    *,
    force: bool,
    dry_run: bool,
    timeout_s: float,
) -> None:
    """Install again what is there; with the arguments of :func:`install`.

    ``asked`` names the namespace, and a registry where the images are not to come from the present one.

    Raises:
        UserError: nothing is installed.
    """
    found = await find_installed(client, asked)
    installation = installation_in(found, asked)
    if installation is None:
        raise UserError(
            f"there is nothing to upgrade: no service of Gangline is in namespace {asked.namespace}",
            hint="gangline install",
        )
    await install(client, installation, say, force=force, dry_run=dry_run, timeout_s=timeout_s)
    wanted = {(obj["kind"], obj["metadata"]["name"]) for obj in objects(installation)}
    gone = [one for one in found if (one.resource.kind, one.name) not in wanted]
    if not dry_run:
        await delete_all(client, [one for one in gone if one.resource != CONFIG_MAPS], say)
