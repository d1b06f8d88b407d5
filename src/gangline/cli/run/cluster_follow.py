"""``gangline run --context C -- PROGRAM``: create the job and what belongs to it, and follow it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gangline.api.codec import Document
from gangline.client.run.cluster_run import deliver, named, names
from gangline.client.run.gpus import COMMAND_LINE

if TYPE_CHECKING:
    from gangline.client.run.cluster_program import ClusterProgram
    from gangline.client.run.notify import Notifier
    from gangline.client.target import ClusterTarget
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]


def follow(
    run: ClusterProgram,
    target: ClusterTarget,
    name: str | None,
    started_s: float,
    notifier: Notifier | None = None,
) -> int:
    """Create the job and what belongs to it, follow it, and return the exit code."""
    from gangline.cli.run.flow import run_documents

    left = names(run, name)

    def next_job() -> Obj:
        return named(run, next(left))

    async def hand_over(client: ObjectClient, job: Obj) -> None:
        await deliver(run, client, job)

    document = Document(next_job(), file=COMMAND_LINE)
    rename = None if name else next_job
    return asyncio.run(
        run_documents(
            *([document], target, started_s, None, hand_over, rename),
            is_detached=run.pods.is_detached,
            notifier=notifier,
        )
    )
