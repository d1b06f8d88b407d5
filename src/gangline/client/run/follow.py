"""Follow one job to its end: its pods, the log of its primary pod from the first byte, its outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gangline.api.resources import EVENTS, PODS, Resource
from gangline.client.run.followed_log import FollowedLog, Read
from gangline.errors import ClusterError, GanglineError
from gangline.launch.rank_failure import LauncherOutput
from gangline.launch.rank_tags import ANNOTATION
from gangline.workloads.job_outcome import EndStatus, JobOutcome
from gangline.workloads.job_start import JobRef, attempt_in_words, job_ref
from gangline.workloads.job_state import (
    exit_code_of,
    expected_pods,
    finished,
    has_started,
    is_suspended,
    primary_pods,
    sort_pods,
)
from gangline.workloads.kinds import kind_of
from gangline.workloads.pending import PendingReason, is_silent, pending_reason_of
from gangline.workloads.pod_state import disruption_of
from gangline.workloads.start_gates import StartGate, not_made

if TYPE_CHECKING:
    from gangline.client.run.kept_run import KeptRun
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]
Recover = Callable[[], Awaitable[None]]

UNREACHABLE_MAX_S = 30.0
WATCH_RETRY_S = 0.1
LOG_DRAIN_S = 10.0
LOG_RETRY_S = 0.05
LOG_RETRIES_MAX = 600
SILENCE_S = 2.0
"""How long a pod may wait without a reason in its status before the events about it are followed."""
RANKS_AFTER_S = 3.0
"""Ranks that hang are told after this: shorter jobs do without another watch."""
CHIEF_POD_GRACE_S = 2.0
"""How long after a job's end its primary pod's last state is waited for."""
POD_ENDS_LIMIT_S = 2.0
"""How long after it the last states of its other pods are; without a grace period they take 0.3 s."""


class FollowView(Protocol):
    """What a follower tells: a terminal's live view, or plain lines."""

    def pods_changed(self, job: Obj, pods: list[Obj]) -> None:
        """The job or one of its pods changed."""

    def pending_reason_of(self, job: Obj, pod: Obj, reason: PendingReason) -> None:
        """A pod cannot start for this reason; told once, and again when it changes."""

    def notice(self, job: JobRef, text: str) -> None:
        """Some rank is stopped or keeps others waiting, or goes on; or pods were taken away."""

    def log(self, job: JobRef, data: bytes) -> None:
        """A piece of the log came; pieces do not end where lines end."""

    def record(self, job: JobRef, record: Obj) -> None:
        """A training said in its log how it is; see `gangline.train.records`."""


class _State(msgspec.Struct):
    job: Obj
    pods: dict[str, Obj] = {}
    present: frozenset[str] = frozenset()
    over_at: float = 0.0
    gone: bool = False
    seen: bool = False
    said: set[PendingReason | str] = set()
    disrupted: set[str] = set()
    warnings: list[Obj] = []
    told: set[tuple[str, int]] = set()
    logs: dict[str, asyncio.Task[None]] = {}


class Follower:
    """Follows one job; ``run`` returns its outcome.

    Args:
        client: of the API server.
        resource: kind of the job.
        job: the object as the server returned it on creation.
        view: is told what happens.
        recover: called when the server cannot be reached.
        on_stuck: called when a pod is held up; may raise to end the wait.
        has_history: the server tells all that happened since it created the job, which has no older pods; a
            short job's pods may be gone by now.
        sees_ends: wait for the end of pods that are removed with the job, for what they say then.
        kept: is told what belongs into the history of runs.
    """

    def __init__(
        self,
        client: ObjectClient,
        resource: Resource,
        job: Obj,
        view: FollowView,
        *,
        recover: Recover | None = None,
        on_stuck: Callable[[Obj, Obj, PendingReason], None] = lambda job, pod, reason: None,
        has_history: bool = False,
        sees_ends: bool = False,
        kept: KeptRun | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._state = _State(job)
        self._view = view
        self._recover = recover
        self._on_stuck = on_stuck
        self._sees_ends = sees_ends
        self._kept = kept
        self._pods_since = job["metadata"].get("resourceVersion", "") if has_history else ""
        self._output = LauncherOutput()
        self._has_tags = ANNOTATION in (job["metadata"].get("annotations") or {})
        self._readers: dict[str, FollowedLog] = {}
        self._changed = asyncio.Event()
        self._error: Exception | None = None

    async def run(self) -> JobOutcome:
        """Wait for the end of the job and of its log.

        Raises:
            ClusterError: the server could not be reached for 30 s.
            OSError: the view's output was closed by its reader, or cannot be written.
        """
        state = self._state
        name = state.job["metadata"]["name"]
        labels, fields = kind_of(state.job).pod_selector(state.job)
        job_watch = self._watch(self._resource, self._take_jobs, field_selector=f"metadata.name={name}")
        pod_watch = self._watch(
            PODS, self._take_pods, label_selector=labels, field_selector=fields, since=self._pods_since
        )
        waiter = asyncio.create_task(self._wait())
        watches = [asyncio.create_task(job_watch), asyncio.create_task(pod_watch)]
        warnings = asyncio.create_task(self._watch_warnings())
        complaints = asyncio.create_task(self._watch_complaints())
        ranks = asyncio.create_task(self._watch_ranks())
        try:
            await asyncio.wait([waiter, *watches], return_when=asyncio.FIRST_COMPLETED)
            for watch in watches:
                if watch.done() and not waiter.done():
                    watch.result()  # endless: it only ends with an error, which is raised here
            return await waiter
        finally:
            tasks = [waiter, warnings, complaints, ranks, *watches, *state.logs.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._kept:
                self._kept.close()

    async def _wait(self) -> JobOutcome:
        state = self._state
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._error is not None:
                raise self._error
            if not state.seen:
                continue
            if state.gone:
                await self._drain_deleted()
                return self._outcome("DELETED")
            if over := finished(state.job):
                state.over_at = time.monotonic()
                await self._drain()
                await self._see_ends()
                return self._outcome(over)

    async def _drain(self) -> None:
        """Wait for the primary pod's last state and for the rest of its log, both bounded."""
        await self._wait_until(self._primary_is_over, CHIEF_POD_GRACE_S)
        await self._drain_logs(self._state.logs, LOG_DRAIN_S)

    async def _drain_deleted(self) -> None:
        """Wait for what the ranks of a deleted job say while they end, of a save, within their grace period.

        Pods that stay although their job is gone (``--cascade=orphan``) are not waited for.
        """
        await self._wait_until(lambda: not self._staying(), CHIEF_POD_GRACE_S)
        pods, staying = self._state.pods, self._staying()
        graces = [pods[uid]["metadata"].get("deletionGracePeriodSeconds") or 0 for uid in self._state.logs]
        ending = [uid for uid in self._state.logs if uid not in staying]
        await self._drain_logs(ending, max(graces, default=0) + LOG_DRAIN_S)

    def _staying(self) -> set[str]:
        """Return the pods with a log that nobody has deleted."""
        state = self._state
        return {
            uid
            for uid in state.logs
            if uid in state.present and not state.pods[uid]["metadata"].get("deletionTimestamp")
        }

    async def _drain_logs(self, uids: Iterable[str], limit_s: float) -> None:
        pending = [task for uid in uids if not (task := self._state.logs[uid]).done()]
        if pending:
            await asyncio.wait(pending, timeout=limit_s)
        if self._error is not None:
            raise self._error
        for reader in self._readers.values():
            self._show(reader.flush())

    async def _see_ends(self) -> None:
        """Wait, bounded, for the last states of pods that the job's end removes."""
        spec = kind_of(self._state.job).spec(self._state.job)
        policy = (spec.get("runPolicy") or {}).get("cleanPodPolicy") or "None"
        if self._sees_ends and policy != "None":
            await self._wait_until(self._all_are_over, POD_ENDS_LIMIT_S)

    async def _wait_until(self, check: Callable[[], bool], limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while loop.time() < deadline and not check():
            self._changed.clear()
            try:
                async with asyncio.timeout(deadline - loop.time()):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _all_are_over(self) -> bool:
        pods = self._state.pods.items()
        return all(exit_code_of(pod) is not None for uid, pod in pods if uid in self._state.present)

    def _primary_is_over(self) -> bool:
        primaries = primary_pods(self._state.job, self._state.pods.values())
        return bool(primaries) and exit_code_of(primaries[-1]) is not None

    def _outcome(self, status: EndStatus) -> JobOutcome:
        state = self._state
        pods = sort_pods(state.pods.values())
        primaries = primary_pods(state.job, pods)
        code = exit_code_of(primaries[-1]) if primaries else None
        failure = self._output.failure(code)
        return JobOutcome(state.job, pods, status, code, failure, state.over_at or time.monotonic())

    # Changes -----------------------------------------------------------------------------------------------

    async def _watch(
        self,
        resource: Resource,
        take: Callable[[list[Obj]], None],
        *,
        label_selector: str = "",
        field_selector: str = "",
        since: str = "",
    ) -> None:
        """Hand over all objects in the job's namespace after every change; endless, but for an error."""
        from gangline.kube.backoff import Backoff
        from gangline.kube.cache import Cache

        cache: Cache[Obj] = Cache(
            self._client,
            resource,
            dict,
            namespace=self._state.job["metadata"].get("namespace"),
            label_selector=label_selector,
            field_selector=field_selector,
            backoff=Backoff(WATCH_RETRY_S, WATCH_RETRY_S, WATCH_RETRY_S),
            since=since,
            on_failure=self._on_failure,
        )
        cache.on_objects(take)
        await cache.run()

    async def _on_failure(self, error: GanglineError, unreachable_s: float) -> None:
        """Bring a server back that cannot be reached; raise what is no matter of another try."""
        from gangline.kube.errors import Gone, ServerError, Unavailable

        if isinstance(error, Gone):
            return
        if not isinstance(error, Unavailable | ServerError) or unreachable_s > UNREACHABLE_MAX_S:
            raise error
        if self._recover is not None:
            with suppress(ClusterError):  # it may be killed once more while it starts
                await self._recover()

    def _take_jobs(self, objects: list[Obj]) -> None:
        state = self._state
        uid = state.job["metadata"].get("uid")
        found = next((job for job in objects if uid in (None, job["metadata"].get("uid"))), None)
        if found is None:
            state.gone = state.seen = True
        else:
            found.setdefault("kind", self._resource.kind)
            state.job, state.seen = found, True
            self._view.pods_changed(state.job, sort_pods(state.pods.values()))
        self._keep()
        self._changed.set()

    def _keep(self) -> None:
        if self._kept:
            self._kept.saw(self._state.job, sort_pods(self._state.pods.values()), is_gone=self._state.gone)

    def _take_pods(self, objects: list[Obj]) -> None:
        state = self._state
        state.present = frozenset(pod["metadata"]["uid"] for pod in objects)
        kind, created = kind_of(state.job), state.job["metadata"].get("creationTimestamp") or ""
        for pod in objects:
            older = (pod["metadata"].get("creationTimestamp") or "") < created
            if kind.belongs(state.job, pod) and not older:
                state.pods[pod["metadata"]["uid"]] = pod
        for pod in primary_pods(state.job, state.pods.values()):
            self._start_log(pod["metadata"]["uid"])
        self._tell_reasons()
        self._view.pods_changed(state.job, sort_pods(state.pods.values()))
        self._keep()
        self._changed.set()

    async def _watch_warnings(self) -> None:
        """Once a pod has waited a while without a word in its status, follow the events about pods."""
        await asyncio.sleep(SILENCE_S)
        while not any(is_silent(pod) for pod in self._state.pods.values()):
            await asyncio.sleep(SILENCE_S)
        with suppress(ClusterError):  # not everybody may read events; the status says most
            selector = "type=Warning,involvedObject.kind=Pod"
            await self._watch(EVENTS, self._take_warnings, field_selector=selector)

    async def _watch_complaints(self) -> None:
        """Once pods have been missing for a while, follow the events that say why they cannot be made."""
        await asyncio.sleep(SILENCE_S)
        while len(self._state.present) >= expected_pods(self._state.job):
            await asyncio.sleep(SILENCE_S)
        with suppress(ClusterError):
            selector = f"type=Warning,involvedObject.uid={self._state.job['metadata'].get('uid')}"
            await self._watch(EVENTS, lambda found: self._take_gate(not_made(found)), field_selector=selector)

    def _take_gate(self, gate: StartGate | None) -> None:
        """Say it once, until the job starts: the names of the pods differ each time."""
        if gate and gate.kind not in self._state.said and not is_suspended(self._state.job):
            self._state.said.add(gate.kind)
            self._view.notice(job_ref(self._state.job), gate.message)

    async def _watch_ranks(self) -> None:
        """Pass on what the node agent says of ranks that hang; see `gangline.cluster.node.rank_reports`."""
        await asyncio.sleep(RANKS_AFTER_S)
        with suppress(ClusterError):
            selector = "source=gangline-agent,involvedObject.kind=Pod"
            await self._watch(EVENTS, self._take_rank_events, field_selector=selector)

    def _take_rank_events(self, objects: list[Obj]) -> None:
        from gangline.cluster.node.rank_reports import REASONS

        state = self._state
        for event in objects:
            happened = (event["metadata"]["uid"], int(event.get("count") or 1))
            is_own = (event.get("involvedObject") or {}).get("uid") in state.pods
            if is_own and event.get("reason") in REASONS and happened not in state.told:
                state.told.add(happened)
                self._view.notice(job_ref(state.job), str(event.get("message", "")))

    def _take_warnings(self, objects: list[Obj]) -> None:
        self._state.warnings = objects
        self._tell_reasons()
        self._changed.set()

    def _tell_reasons(self) -> None:
        """Say why pods were taken away or do not start: each reason once, until the job starts again."""
        state = self._state
        for pod in sort_pods(state.pods.values()):
            uid = pod["metadata"]["uid"]
            if uid not in state.disrupted and (disruption := disruption_of(pod)):
                state.disrupted.add(uid)
                if disruption not in state.said:
                    state.said = {disruption}
                    self._view.notice(job_ref(state.job), disruption)
            reason = pending_reason_of(pod, state.warnings)
            if reason is None or reason in state.said or pod["metadata"].get("deletionTimestamp"):
                continue
            state.said.add(reason)
            self._view.pending_reason_of(state.job, pod, reason)
            try:
                self._on_stuck(state.job, pod, reason)
            except GanglineError as error:  # handed to the waiting task, which raises it
                self._error = error

    # Log ---------------------------------------------------------------------------------------------------

    def _start_log(self, uid: str) -> None:
        if uid not in self._state.logs and has_started(self._state.pods[uid]):
            self._state.said.clear()
            if attempt := attempt_in_words(self._state.job, self._state.pods.values(), self._state.pods[uid]):
                self._view.notice(job_ref(self._state.job), attempt)
            self._state.logs[uid] = asyncio.create_task(self._stream_log(uid))

    async def _stream_log(self, uid: str) -> None:
        """Pass the whole log of one pod on; after an interruption go on behind what was delivered."""
        pod = self._state.pods[uid]
        metadata = pod["metadata"]
        container = pod["spec"]["containers"][0]["name"]
        delivered = 0
        reader = self._readers[uid] = FollowedLog(self._output, has_tags=self._has_tags)
        for _ in range(LOG_RETRIES_MAX):
            skip = delivered
            try:
                pieces = self._client.logs(
                    metadata["name"], metadata["namespace"], container=container, follow=True
                )
                async with aclosing(pieces):
                    async for piece in pieces:
                        fresh = piece[skip:]
                        skip = max(0, skip - len(piece))
                        delivered += len(fresh)
                        if fresh and self._kept:
                            self._kept.log(pod, fresh)
                        if fresh:
                            self._show(reader.feed(fresh))
                if self._log_is_whole(uid):
                    return
            except ClusterError as error:
                status = getattr(error, "status", 0)
                if status not in (0, 400, 500, 503):
                    return
            except OSError as error:  # its reader went away, or its disk is full
                self._error = error
                self._changed.set()
                return
            await asyncio.sleep(LOG_RETRY_S)

    def _log_is_whole(self, uid: str) -> bool:
        """Whether the stream ended because the container did, and not because the server broke off."""
        pod = self._state.pods.get(uid)
        return pod is None or exit_code_of(pod) is not None or bool(finished(self._state.job))

    def _show(self, read: Read) -> None:
        shown, records = read
        if shown:
            self._view.log(job_ref(self._state.job), shown)
        for record in records:
            self._view.record(job_ref(self._state.job), record)
