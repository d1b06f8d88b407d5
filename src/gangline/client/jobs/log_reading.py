"""Read the log of a job: which pods have it, and what of it is for people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from gangline.client.jobs.job_lookup import pods_of
from gangline.client.jobs.log_text import LogText, lines_to_ask_for
from gangline.errors import ClusterError, UserError
from gangline.launch.rank_tags import ANNOTATION
from gangline.workloads.job_state import finished, has_started, index_of, primary_pods

if TYPE_CHECKING:
    from gangline.cluster.runs.record import RunRecord
    from gangline.kube.verbs import ObjectReader

Obj = dict[str, Any]
Read = tuple[bytes, list[Obj]]
"""What is shown, and the records that came."""

START_TIMEOUT_S = 3600.0
START_LOOK_S = 0.1
TAIL_SPARE_LINES = 10
"""Asked for beside twice the lines of ``-t``: a training writes a record to each of its own lines at most."""


async def read_log(
    client: ObjectReader, pod: Obj, options: Obj, *, counts_lines: bool = True
) -> AsyncGenerator[Read, None]:
    """Yield the log of one pod as people read it, and the records in it.

    Args:
        client: of the cluster, or of what was kept.
        pod: whose first container is meant, unless the options name one.
        options: of the API server's log, `tail_lines` among them.
        counts_lines: those are lines for people, without records.
    """
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    has_tags = ANNOTATION in (pod["metadata"].get("annotations") or {})
    text = LogText(has_tags=has_tags, has_timestamps=bool(options.get("timestamps")))
    tail = options.get("tail_lines")
    if tail is not None and counts_lines:
        tail = await _raw_tail(client, name, namespace, options)
    async with aclosing(client.logs(name, namespace, **{**options, "tail_lines": tail})) as pieces:
        async for piece in pieces:
            yield text.feed(piece)
    yield text.flush()


async def _raw_tail(client: ObjectReader, pod: str, namespace: str, options: dict[str, Any]) -> int | None:
    """Return how many lines to ask the server for, which counts records as lines; None for all."""
    wanted, asked = options["tail_lines"], 2 * options["tail_lines"] + TAIL_SPARE_LINES
    while wanted:
        look = options | {"tail_lines": asked, "follow": False, "timestamps": False}
        async with aclosing(client.logs(pod, namespace, **look)) as pieces:
            log = b"".join([piece async for piece in pieces])
        if found := lines_to_ask_for(log, wanted):
            return found
        if log.count(b"\n") < asked:
            return None
        asked *= 4
    return 0


def check_log(record: RunRecord) -> None:
    """Refuse a past run of which no pod was started.

    Raises:
        UserError: it has no log.
    """
    if not any(has_started(pod) for pod in record.pods):
        name = record.job["metadata"]["name"]
        raise UserError(
            f"run `{name}` has no log: it ended before any of its pods was started",
            hint=f"`gangline get {name}` shows what is known of it",
        )


def _no_instance(job: dict[str, Any], pods: list[dict[str, Any]], instance: str) -> UserError:
    """Return the error for a pod that the job does not have, or not any more."""
    from gangline.api.mpijob_reading import current_spec
    from gangline.workloads.job_state import finished
    from gangline.workloads.kinds import kind_of

    known = ", ".join(f"`{pod['metadata']['name']}`" for pod in pods) or "none"
    hint = f"it has {known}"
    if kind_of(job).primary and "worker" in instance and finished(job):
        policy = ((current_spec(job).get("runPolicy") or {}).get("cleanPodPolicy")) or "None"
        hint += f"; its `cleanPodPolicy: {policy}` removed workers at its end, `None` keeps them"
    return UserError(f"job `{job['metadata']['name']}` has no instance `{instance}`", hint=hint)


async def choose_pods(
    client: ObjectReader, job: dict[str, Any], instance: str | None, *, wait: bool
) -> list[dict[str, Any]]:
    """Return the pods whose log is meant; with ``wait`` those that have not started yet are waited for.

    That is one, but for an indexed Job whose pods hold ranks of one program: then the newest of each index.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_TIMEOUT_S
    while True:
        pods = await pods_of(client, job)
        chosen = pods if instance else primary_pods(job, pods)
        if instance:
            chosen = [
                pod
                for pod in pods
                if pod["metadata"]["name"] in (instance, f"{job['metadata']['name']}-{instance}")
            ]
            if not chosen:
                raise _no_instance(job, pods, instance)
        newest = {index: pod for pod in chosen if (index := index_of(pod)) is not None and not instance}
        if newest and ANNOTATION in (job["metadata"].get("annotations") or {}):
            if all(map(has_started, newest.values())) or not wait:
                return [pod for _, pod in sorted(newest.items()) if has_started(pod)] or chosen[-1:]
        elif chosen and (has_started(chosen[-1]) or not wait):
            return chosen[-1:]
        if not wait or finished(job) or loop.time() > deadline:
            raise ClusterError(
                f"job `{job['metadata']['name']}` has no log yet: its launcher has not been started",
                hint="wait for it with -f",
            )
        await asyncio.sleep(START_LOOK_S)
