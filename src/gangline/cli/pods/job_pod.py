"""Which pod of a job is meant: its primary one, one by its name, or the one that holds a rank."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gangline.cli.jobs.job_names import complete_job_name
from gangline.cli.options.job_types import qualified, type_option
from gangline.cli.options.target import target_options
from gangline.client.target import ClusterTarget, open_client

if TYPE_CHECKING:
    from gangline.kube.client import Client

F = TypeVar("F", bound=Callable[..., Any])


def pod_options(function: F) -> F:
    """Add the job's name and the options that choose a pod of it."""
    for option in (
        target_options(),
        type_option,
        click.option("--instance", metavar="POD", help="One pod of the job instead of its primary one."),
        click.option("--rank", type=click.IntRange(min=0), metavar="N", help="The pod that holds rank N."),
        click.argument("name", shell_complete=complete_job_name),
    ):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class RunningPod:
    """The pod that is meant, and who asks for it.

    Attributes:
        client: of its cluster.
        name, namespace: of the pod.
        container: that is meant where none is named.
    """

    client: Client
    name: str
    namespace: str
    container: str


@asynccontextmanager
async def open_pod(
    target: ClusterTarget, name: str, kind: str, *, instance: str | None, rank: int | None
) -> AsyncIterator[RunningPod]:
    """Find the pod that is meant, while it runs.

    Raises:
        UserError: there is none, or it does not run.
    """
    from gangline.client.jobs.job_lookup import find_job, pods_of
    from gangline.workloads.running_pod import choose_pod, default_container

    target.check_up()
    async with open_client(target) as client:
        _, job = await find_job(client, qualified(name, kind), client.connection.namespace)
        pod = choose_pod(job, await pods_of(client, job), instance=instance, rank=rank)
        meta = pod["metadata"]
        yield RunningPod(client, meta["name"], meta["namespace"], default_container(pod))
