"""Names of jobs for a shell that completes a command line; nothing is said when there are none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from gangline.client.target import ClusterTarget, open_client
from gangline.cluster.paths import DEFAULT_CLUSTER
from gangline.errors import UserError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ANSWER_TIMEOUT_S = 2.0
"""A shell that waits longer for a cluster's answer shows no names; nobody waits longer for a key."""

PAST_TOO = ("get", "logs", "explain")
"""Commands that also take the name of a past run."""


def complete_job_name(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the jobs of the namespace that begin as typed, each with its status; none twice on a line."""
    from click.shell_completion import CompletionItem

    from gangline.clock import now
    from gangline.workloads.job_view import view_job

    given = context.params
    typed = given.get(parameter.name or "")
    target = ClusterTarget(
        cluster=given.get("cluster") or DEFAULT_CLUSTER,
        context=given.get("context"),
        kubeconfig=given.get("kubeconfig"),
        namespace=given.get("namespace") or "",
    )
    try:
        jobs = asyncio.run(_jobs(target))
        found = {job["metadata"]["name"]: view_job(job, (), now()).status.lower() for job in jobs}
    except Exception:  # noqa: BLE001 - whatever is wrong, a key must not print a traceback
        found = {}
    if context.info_name in PAST_TOO:
        found = dict.fromkeys(_past(target), "past run") | found
    used = typed if isinstance(typed, tuple) else ()
    return [
        CompletionItem(name, help=status)
        for name, status in found.items()
        if name.startswith(incomplete) and name not in used
    ]


def _past(target: ClusterTarget) -> list[str]:
    """Return the names of runs that are kept of the namespace, the newest first."""
    from gangline.cluster.runs.history import History

    try:
        namespace = target.namespace or ("default" if target.is_local else target.connection().namespace)
        return [file.name for file in History(target.kept).files() if file.namespace == namespace]
    except (OSError, UserError):
        return []


async def _jobs(target: ClusterTarget) -> list[dict[str, Any]]:
    from gangline.client.jobs.job_lookup import list_jobs

    async with asyncio.timeout(ANSWER_TIMEOUT_S), open_client(target) as client:
        return await list_jobs(client, client.connection.namespace)
