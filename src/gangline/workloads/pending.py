"""Why a pod or its gang does not start, as a value: from its status, else from warnings about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from gangline.workloads.kinds import is_worker, kind_of
from gangline.workloads.outcome import describe_end

Obj = dict[str, Any]

START_ERRORS = ("StartError", "ContainerCannotRun")
"""Reasons with which a container ends whose program could not be started at all."""

GANG_WAITED = "gangline.dev/GangWaited"
"""Condition of a pod that waits, or waited last, with its whole gang; its reason is one of ``Wait``.

Beside ``PodScheduled``, whose reason has to be ``Unschedulable`` for whoever adds nodes.
"""

UNSCHEDULABLE = "Unschedulable"
NEVER_FITS = "NeverFits"
"""A gang for which there would be no room if nothing else ran."""
GPUS_TAKEN = "GPUsTaken"
"""A container that is on its node, and whose GPUs other pods still hold."""

IMAGE_REFUSED = ("ErrImagePull", "ErrImageNeverPull", "InvalidImageName")
"""An image that cannot be had, where nothing pulls it later."""

_QUIET = (None, "", "ContainerCreating", "PodInitializing")
_NOT_OVER = (None, "Pending")
_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedScheduling", "Failed")


class PendingReason(NamedTuple):
    """What keeps a pod or its gang from running; equal for the same reason, however often it was tried.

    Attributes:
        kind: the word of Kubernetes, ``StartError``; of a gang that of its scheduler, ``NoRoom``.
        message: the sentence that belongs to it.
        pod: its name; empty when its whole gang waits.
        container: name of the container; empty when the whole pod waits.
    """

    kind: str
    message: str
    pod: str = ""
    container: str = ""

    @property
    def scope(self) -> Literal["pod", "gang"]:
        """Who waits."""
        return "pod" if self.pod else "gang"

    @property
    def names_missing_object(self) -> bool:
        """Whether an object that the pod names is not there, in the words of the API server."""
        # configmap "settings" not found
        return "not found" in self.message

    def __str__(self) -> str:
        if self.scope == "gang":
            return self.message
        if self.kind == UNSCHEDULABLE:
            return f"pod {self.pod} fits on no node: {self.message}".rstrip(": ")
        place = f"pod {self.pod}" + (f", container {self.container}" if self.container else "")
        return f"{place}: {self.kind}: {self.message}".rstrip(": ")


def pending_reason_of(pod: Obj, warnings: Iterable[Obj] = ()) -> PendingReason | None:
    """Return what holds a pod up, ``None`` when nothing is known to.

    Args:
        pod: in wire form.
        warnings: events about it, used when its own status says nothing.
    """
    status = pod.get("status") or {}
    if status.get("phase") in _NOT_OVER and (found := _unschedulable(pod, status)):
        return found
    name = pod["metadata"]["name"]
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        if found := _held_container(name, container):
            return found
    if status.get("phase") not in _NOT_OVER:
        return None
    return next((found for event in warnings if (found := _from_event(pod, event))), None)


def _unschedulable(pod: Obj, status: Obj) -> PendingReason | None:
    conditions = {entry.get("type"): entry for entry in status.get("conditions") or []}
    placed = conditions.get("PodScheduled") or {}
    if placed.get("status") != "False":
        return None
    message = placed.get("message") or placed.get("reason") or ""
    if gang := conditions.get(GANG_WAITED):
        return PendingReason(gang["reason"], message)
    return PendingReason(UNSCHEDULABLE, message, pod["metadata"]["name"])


def _held_container(pod: str, status: Obj) -> PendingReason | None:
    state, name = status.get("state") or {}, status.get("name") or ""
    waiting = state.get("waiting")
    ended = state.get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    if not state.get("running") and ended.get("reason") in START_ERRORS:
        return PendingReason(ended["reason"], one_line(ended.get("message") or ""), pod, name)
    if not waiting:
        return None
    reason, message = waiting.get("reason"), one_line(waiting.get("message") or "")
    if reason == "CrashLoopBackOff" and ended:
        how = describe_end(ended.get("exitCode", 0), ended.get("reason") or "")
        return PendingReason(reason, f"it is started again after it {how}", pod, name)
    if reason in _QUIET:
        if not message:
            return None
        # What the kubelet says, and our agent after it: MountVolume.SetUp failed for volume "v": ...
        reason = "FailedMount" if "MountVolume" in message else reason or "Waiting"
    return PendingReason(str(reason), message, pod, name)


def _from_event(pod: Obj, event: Obj) -> PendingReason | None:
    about = event.get("involvedObject") or {}
    if about.get("uid") != pod["metadata"].get("uid") or event.get("reason") not in _EVENTS:
        return None
    return PendingReason(event["reason"], one_line(event.get("message") or ""), pod["metadata"]["name"])


def one_line(text: str) -> str:
    """Return a message without line breaks."""
    return " ".join(text.split())


def is_silent(pod: Obj) -> bool:
    """Return whether a pod waits and its status does not say why, so that its events are worth a look."""
    return (pod.get("status") or {}).get("phase") in _NOT_OVER and pending_reason_of(pod) is None


def start_error(pods: Iterable[Obj]) -> PendingReason | None:
    """Return why the program of a container could not be started at all, of the last such pod."""
    last = None
    for pod in pods:
        found = pending_reason_of(pod)
        if found is not None and found.kind in START_ERRORS:
            last = found
    return last


def tries(job: Obj, pod: Obj) -> str:
    """Return how often a container that cannot be started is tried again; empty when it is not."""
    policy = pod["spec"].get("restartPolicy") or "Always"
    kind = kind_of(job)
    spec = kind.spec(job)
    if kind.pod_labels is None:
        return "" if policy == "Never" else "it is tried again without end, after growing pauses"
    limit = (spec.get("runPolicy") or {}).get("backoffLimit")
    limit = spec.get("backoffLimit") if limit is None else limit
    limit = kind.tries if limit is None else int(limit)
    if is_worker(pod) or limit is None:
        return "" if policy == "Never" else "it is tried again as long as the job lasts, after growing pauses"
    if not limit:
        return ""
    times = "once" if limit == 1 else f"up to {limit} times"
    return f"it is tried again {times} in all, after growing pauses (`backoffLimit: {limit}`)"
