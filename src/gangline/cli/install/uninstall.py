"""``gangline uninstall``: takes operator and scheduler from a cluster, and the jobs if they are to go."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from gangline.cli.options.target import target_options
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.installation.removal import Removal


@click.command("uninstall")
@click.option("--keep-jobs", is_flag=True, help="Leave the definitions, and with them all jobs.")
@click.option("--yes", is_flag=True, help="Delete jobs without a question.")
@target_options()
def command(keep_jobs: bool, yes: bool, target: ClusterTarget) -> None:
    """Take operator and scheduler from a cluster, with the definitions and the jobs; asks before jobs go.

    With --namespace only what `gangline install --namespace` has brought there; jobs stay.
    """
    from gangline.cli.install.install import check_is_no_own

    check_is_no_own(target)
    asyncio.run(_uninstall(target, keep_jobs=keep_jobs, yes=yes))


async def _uninstall(target: ClusterTarget, *, keep_jobs: bool, yes: bool) -> None:
    from gangline.cli.install.install import installation_of
    from gangline.installation.found import refuse_helms
    from gangline.installation.removal import carry_out, plan_removal

    installation = installation_of(target, operator_only=False, image_prefix="")
    async with open_client(target) as client:
        await refuse_helms(client, installation)
        removal = await plan_removal(client, installation, keep_jobs=keep_jobs)
        if not (removal.objects or removal.definitions):
            print("nothing of Gangline is installed")
            return
        if removal.jobs and not yes:
            _ask(removal)
        await carry_out(client, removal, print)


def _ask(removal: Removal) -> None:
    """Have somebody agree that jobs go.

    Raises:
        UserError: nobody is there, or does not agree.
    """
    counts = Counter(job["metadata"]["namespace"] for job in removal.jobs)
    where = ", ".join(f"{count} in {namespace}" for namespace, count in sorted(counts.items()))
    question = f"{len(removal.jobs)} MPIJobs are deleted, running ones too ({where})"
    if sys.stdin.isatty() and click.confirm(f"{question}. Go on?", default=False, err=True):
        return
    raise UserError(f"nothing is uninstalled: {question}", hint="--yes agrees, --keep-jobs leaves them")
