"""Why a job failed, told after its end: from its pods, and from the end of its launcher's log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from gangline.errors import ClusterError, UserError
from gangline.launch.hydra_tags import HydraTags
from gangline.launch.rank_failure import LAUNCHER_LINES_MAX, LauncherOutput
from gangline.launch.rank_tags import ANNOTATION, split_line
from gangline.workloads.job_outcome import EndStatus, JobOutcome, cause_of
from gangline.workloads.job_state import exit_code_of, finished, primary_pods
from gangline.workloads.outcome import Cause

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectReader

Obj = dict[str, Any]

LOGS_AT_ONCE = 8


async def why_failed(client: ObjectReader, job: Obj, pods: Sequence[Obj]) -> Cause | None:
    """Return the cause that `gangline run` tells of a job that failed, None for any other job.

    Reads the last 400 lines of one log. Where that is gone only pods and conditions tell.
    """
    return cause_of(await past_outcome(client, job, pods)) if finished(job) == "FAILED" else None


async def past_outcome(client: ObjectReader, job: Obj, pods: Sequence[Obj]) -> JobOutcome:
    """Return how a job ended that is over or gone; of one that failed, with what the end of its log tells."""
    primaries = primary_pods(job, pods)
    code = exit_code_of(primaries[-1]) if primaries else None
    status: EndStatus = finished(job) or "DELETED"
    if status != "FAILED":
        return JobOutcome(job, list(pods), status, code)
    log = await _end_of_log(client, primaries[-1]) if primaries else b""
    has_tags = ANNOTATION in (job["metadata"].get("annotations") or {})
    return JobOutcome(job, list(pods), status, code, read_output(log, has_tags=has_tags).failure(code))


async def why_all_failed(
    client: ObjectReader, jobs: Sequence[Obj], members: Sequence[Sequence[Obj]]
) -> list[Cause | None]:
    """Return why each of many jobs failed; a few logs are read at a time."""
    turns = asyncio.Semaphore(LOGS_AT_ONCE)

    async def one(job: Obj, pods: Sequence[Obj]) -> Cause | None:
        async with turns:
            return await why_failed(client, job, pods)

    return await asyncio.gather(*map(one, jobs, members))


def read_output(log: bytes, *, has_tags: bool) -> LauncherOutput:
    """Return what a log tells of ranks; ``has_tags``: Gangline had their lines tagged."""
    output, pieces = LauncherOutput(), HydraTags()
    data = pieces.feed(log) + pieces.flush() if has_tags else log
    for line in data.split(b"\n"):
        for part in split_line(line) if has_tags else [line]:
            output.feed(part.decode(errors="replace"))
    return output


async def _end_of_log(client: ObjectReader, pod: Obj) -> bytes:
    """Return the end of a pod's log; empty when it is gone, or not ours to read."""
    metadata = pod["metadata"]
    container = pod["spec"]["containers"][0]["name"]
    with suppress(ClusterError, UserError):
        pieces = client.logs(
            metadata["name"], metadata["namespace"], container=container, tail_lines=LAUNCHER_LINES_MAX
        )
        async with aclosing(pieces):
            return b"".join([piece async for piece in pieces])
    return b""
