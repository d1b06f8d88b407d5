"""``gangline install``: operator and gang scheduler on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from gangline.cli.options.target import target_options
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.installation.objects import Installation

F = TypeVar("F", bound=Callable[..., object])
READY_WITHIN_S = 120


def rollout_options(function: F) -> F:
    """Add --image-prefix, --force, --dry-run and --timeout."""
    options = (
        click.option(
            "--image-prefix",
            default="",
            metavar="REGISTRY",
            help="Where the images were pushed to: REGISTRY/gangline:VERSION and so on.",
        ),
        click.option("--force", is_flag=True, help="Take over fields that others have changed since."),
        click.option("--dry-run", is_flag=True, help="Let the server check everything, change nothing."),
        click.option(
            "--timeout",
            type=click.IntRange(1),
            default=READY_WITHIN_S,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait until they are ready.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command("install")
@click.option("--operator-only", is_flag=True, help="Without the gang scheduler; jobs make no gangs.")
@click.option(
    "--replace",
    is_flag=True,
    help="Stop the MPI operator and write over definitions of others; uninstall puts both back.",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml"]), default=None, help="Print the manifests, for no cluster."
)
@rollout_options
@target_options()
def command(
    operator_only: bool,
    image_prefix: str,
    replace: bool,
    force: bool,
    dry_run: bool,
    output: str | None,
    timeout: int,
    target: ClusterTarget,
) -> None:
    """Install operator and gang scheduler on a cluster, and wait until they are ready; again changes nothing.

    With --namespace the operator alone, for the jobs of that namespace, with rights in no other.

    \b
    gangline install --context prod --image-prefix registry.example.com/ml
    """  # noqa: D301 - click's mark for text that is not filled
    installation = installation_of(target, operator_only=operator_only, image_prefix=image_prefix)
    if output:
        from gangline.api.codec import dump_yaml
        from gangline.installation.objects import definitions, objects

        crds = [] if installation.is_namespaced else definitions(installation)
        print(dump_yaml(*crds, *objects(installation)), end="")
        return
    check_is_no_own(target)
    if replace and target.namespace:
        raise UserError("--replace is for the whole cluster", hint="leave --namespace away")
    asyncio.run(
        _install(
            target, installation, replace=replace, force=force, dry_run=dry_run, timeout_s=float(timeout)
        )
    )


def installation_of(target: ClusterTarget, *, operator_only: bool, image_prefix: str) -> Installation:
    """Return what the options ask for."""
    from gangline.installation.objects import SYSTEM_NAMESPACE, Installation

    return Installation(
        namespace=target.namespace or SYSTEM_NAMESPACE,
        is_namespaced=bool(target.namespace),
        has_scheduler=not (operator_only or target.namespace),
        image_prefix=image_prefix.rstrip("/"),
    )


def check_is_no_own(target: ClusterTarget) -> None:
    """Refuse the one-machine cluster, which brings its own services.

    Raises:
        UserError: no other cluster is named.
    """
    if target.is_local:
        raise UserError(
            "which cluster? The one-machine cluster has operator and scheduler already",
            hint="--context CONTEXT; `kubectl config get-contexts` lists them",
        )


async def _install(
    target: ClusterTarget,
    installation: Installation,
    *,
    replace: bool,
    force: bool,
    dry_run: bool,
    timeout_s: float,
) -> None:
    from gangline.installation.installer import install

    async with open_client(target) as client:
        await install(
            client, installation, print, replace=replace, force=force, dry_run=dry_run, timeout_s=timeout_s
        )
