"""Carry out ``gangline run``: check that it fits, create, follow, and hand over the end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from gangline.api.codec import Document
from gangline.api.resources import Resource
from gangline.cli.output import say
from gangline.cli.run.view import PlainView, open_view, result_line
from gangline.client.jobs.gpu_kind import gpu_kind
from gangline.client.run.create_or_attach import delete_job
from gangline.client.run.follow import LOG_DRAIN_S
from gangline.client.run.images import substitutions
from gangline.client.run.kept_run import KeptRun
from gangline.client.run.notify import Notifier, NotifyingView
from gangline.client.run.program_session import HandOver, no_handover
from gangline.client.run.result import failure_of, last_lines
from gangline.client.run.submission import Claimed, bring_back, create_objects, follow_job, way_back
from gangline.client.target import ClusterTarget, open_client
from gangline.cluster.trials.first_try import note_of
from gangline.errors import GanglineError, UnschedulableError
from gangline.units import plural
from gangline.workloads.job_outcome import JobOutcome
from gangline.workloads.job_start import job_ref
from gangline.workloads.job_view import lifetime_s
from gangline.workloads.kinds import find_kind, kind_of
from gangline.workloads.removed_writes import removed_writes

if TYPE_CHECKING:
    from gangline.cluster.images.image_map import ImageMap
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]


READY_LIMIT_S = 60.0
READY_LOOK_S = 0.1
DETACH_WINDOW_S = 1.0
"""A second Ctrl-C within this time detaches; jobs are deleted only after it."""


class Interrupts:
    """Counts Ctrl-C: the first ends the jobs, the second leaves them alone.

    Attributes:
        exit_code: 128 plus the number of the first signal, as of a program that it ends.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def install(self) -> None:
        """Take SIGINT and SIGTERM over for the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._take, number)

    def _take(self, number: int) -> None:
        self.exit_code = self.exit_code or 128 + number
        (self.second if self.first.is_set() else self.first).set()


async def run_documents(
    documents: Sequence[Document],
    target: ClusterTarget,
    started_s: float,
    images: ImageMap | None = None,
    hand_over: HandOver = no_handover,
    next_obj: Callable[[], Obj] | None = None,
    *,
    is_detached: bool = False,
    notifier: Notifier | None = None,
) -> int:
    """Create every object, wait for all that end, and return the exit code.

    Args:
        documents: checked manifests.
        target: where to.
        started_s: time on the monotonic clock just before the first object was created.
        images: what serves images, on the one-machine cluster.
        hand_over: is called with each job that is created here.
        next_obj: returns the one document's job under another name, where Gangline chooses it.
        is_detached: wait for nothing, and say how to follow them.
        notifier: is told of stalls and of the end.

    Raises:
        JobFailedError: a job failed; its exit code is the launcher's.
        UnschedulableError: a pod can never start.
        BrokenPipeError: the reader of the output went away; the jobs go on.
    """
    interrupts = Interrupts()
    interrupts.install()

    async def applied(client: ObjectClient, resource: Resource, document: Document) -> None:
        if find_kind(document.kind):
            await _wait_ready(client, resource, document, target)

    async with open_client(target, bring_back=bring_back(target, say)) as client:
        claimed = await create_objects(client, documents, target, hand_over, next_obj, say, applied)
        if is_detached:
            for one in claimed:
                KeptRun(target.kept).saw(one.job, ())
            _say_detached(claimed, target, "which runs")
        if not claimed or is_detached:
            return 0
        kind = await gpu_kind(client, (job for _, job, _ in claimed))
        view = open_view(prefix_logs=len(claimed) > 1, started_s=started_s, gpu_kind=kind)
        names = ", ".join(str(job_ref(job)) for _, job, _ in claimed)
        try:
            seen = cast("PlainView", NotifyingView(view, notifier)) if notifier else view
            code = await _wait(client, claimed, target, seen, interrupts, started_s, images)
            if notifier:
                notifier.tell("failed" if code else "succeeded", names, f"ended with code {code}")
            return code
        except GanglineError as error:
            if notifier:
                notifier.tell("failed", names, error.render())
            raise
        except BrokenPipeError:
            for _, job, _ in claimed:
                way = f"`gangline logs -f {job['metadata']['name']}{way_back(job, target)}`"
                say(f"{job_ref(job)} goes on without a reader of this output; follow it with {way}")
            raise
        finally:
            if notifier:
                notifier.close()
            with suppress(BrokenPipeError):
                view.close()


async def _wait_ready(
    client: ObjectClient, resource: Resource, document: Document, target: ClusterTarget
) -> None:
    """Wait until the pods of what never ends are ready, and say where they stand and how to go on."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_LIMIT_S
    while True:
        live = await client.get(resource, document.name, document.value["metadata"].get("namespace"))
        status = live.get("status") or {}
        wanted = sum(one.count for one in kind_of({"kind": document.kind} | live).replicas(live))
        ready = int(status.get("readyReplicas") or status.get("numberReady") or 0)
        is_seen = status.get("observedGeneration") == live["metadata"].get("generation")
        if (is_seen and ready >= wanted) or loop.time() > deadline:
            break
        await asyncio.sleep(READY_LOOK_S)
    name = f"{kind_of({'kind': document.kind}).words[0]}/{document.name}"
    more = f"{way_back(document.value, target)}"
    said = [f"{name}: {ready} of {plural(wanted, 'pod')} ready, until it is deleted", note_of(live)]
    say("; ".join(filter(None, said)))
    say(f"hint: see it with `gangline logs -f {name}{more}`, delete it with `gangline delete {name}{more}`")


async def _wait(
    client: ObjectClient,
    claimed: list[Claimed],
    target: ClusterTarget,
    view: PlainView,
    interrupts: Interrupts,
    started_s: float,
    images: ImageMap | None,
) -> int:
    follows = [asyncio.create_task(follow_job(client, one, target, view, say)) for one in claimed]
    following = asyncio.gather(*follows)
    interrupted = asyncio.create_task(interrupts.first.wait())
    try:
        await asyncio.wait((following, interrupted), return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            view.close()
            own = [task for task, one in zip(follows, claimed, strict=True) if not one.was_there]
            return await _interrupted(client, claimed, target, interrupts, own)
        outcomes = await _results(client, following, claimed)
    finally:
        interrupted.cancel()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)  # else asyncio complains at the end
    view.close()
    return _conclude(outcomes, max(one.over_at for one in outcomes) - started_s, view, images)


async def _results(
    client: ObjectClient, following: asyncio.Future[list[JobOutcome]], claimed: list[Claimed]
) -> list[JobOutcome]:
    """Return the outcomes; jobs of which a pod can never start are deleted before the error goes on."""
    try:
        return following.result()
    except UnschedulableError:
        for resource, job, was_there in claimed:
            if not was_there:
                await delete_job(client, resource, job)
        raise


async def _interrupted(
    client: ObjectClient,
    claimed: list[Claimed],
    target: ClusterTarget,
    interrupts: Interrupts,
    follows: list[asyncio.Task[JobOutcome]],
) -> int:
    if theirs := [one for one in claimed if one.was_there]:
        say("\ninterrupted")
        _say_detached(theirs, target, "which another command started and which goes on")
    claimed = [one for one in claimed if not one.was_there]
    if not claimed:
        return interrupts.exit_code
    names = ", ".join(str(job_ref(job)) for _, job, _ in claimed)
    say(f"\ninterrupted: deleting {names} (Ctrl-C again within {DETACH_WINDOW_S:.0f} s leaves it running)")
    try:
        async with asyncio.timeout(DETACH_WINDOW_S):
            await interrupts.second.wait()
    except TimeoutError:
        return await _delete_all(client, claimed, target, interrupts, follows)
    _say_detached(claimed, target, "which goes on")
    return interrupts.exit_code


async def _delete_all(
    client: ObjectClient,
    claimed: list[Claimed],
    target: ClusterTarget,
    interrupts: Interrupts,
    follows: list[asyncio.Task[JobOutcome]],
) -> int:
    """Delete the jobs, wait for their end and for all they say until then; a second Ctrl-C ends the wait."""
    deleting = asyncio.gather(*(delete_job(client, resource, job) for resource, job, _ in claimed))
    second = asyncio.create_task(interrupts.second.wait())
    await asyncio.wait((deleting, second), return_when=asyncio.FIRST_COMPLETED)
    second.cancel()
    if deleting.done():
        deleting.result()
        await asyncio.wait(follows, timeout=LOG_DRAIN_S)
        say("deleted; nothing is left running")
        return interrupts.exit_code
    deleting.cancel()
    await asyncio.gather(deleting, return_exceptions=True)
    _say_detached(claimed, target, "which is being deleted")
    return interrupts.exit_code


def _say_detached(claimed: list[Claimed], target: ClusterTarget, state: str) -> None:
    for _, job, _ in claimed:
        name = f"{job['metadata']['name']}{way_back(job, target)}"
        say(f"detached from {job_ref(job)}, {state}")
        say(f"hint: see it with `gangline logs -f {name}`, delete it with `gangline delete {name}`")


def _conclude(outcomes: list[JobOutcome], took_s: float, view: PlainView, images: ImageMap | None) -> int:
    """Say how each job ended; the first failure becomes the command's."""
    failures: list[GanglineError] = []
    for outcome in outcomes:
        failure = failure_of(outcome)
        if failure is None:
            view.succeeded(outcome.job, outcome.pods)
            lasted_s = max(took_s, lifetime_s(outcome.job))  # a job found running was there before us
            gpus = view.gpus_of(job_ref(outcome.job))
            line = result_line(job_ref(outcome.job), outcome.status, outcome.exit_code, lasted_s, gpus)
            say("; ".join([line, *_served(outcome.job, images)]))
            _say_removed_writes(outcome)
            continue
        for line in last_lines(outcome, is_alone=len(outcomes) == 1):
            say(line)
        for line in _served(outcome.job, images):
            say(line)
        _say_removed_writes(outcome)
        failures.append(failure)
    for other in failures[1:]:
        say(other.render())
    if failures:
        raise failures[0]
    return 0


def _say_removed_writes(outcome: JobOutcome) -> None:
    for pod in outcome.pods:
        if words := removed_writes(pod):
            say(f"warning: pod {pod['metadata']['name']} {words}")


def _served(job: Obj, images: ImageMap | None) -> list[str]:
    note = note_of(job)
    return [*([note] if note else []), *(substitutions([job], images) if images is not None else [])]
