"""Which containers of a pod to start now: init order, restart policy, back-off. Pure.

Source: Kubernetes documentation, "Pod lifecycle"; the kubelet's back-off (10 s doubling to 300 s, the first
restart at once, anew after 10 minutes of running).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.api.core import Container, Pod
from gangline.cluster.node.pods.observed_containers import ObservedContainer

BACK_OFF_FIRST_S = 10.0
BACK_OFF_MAX_S = 300.0


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next.

    Attributes:
        start: names of containers to start now.
        backing_off: container name -> whole back-off in seconds, for those that wait to be restarted.
        wake_at_s: when a back-off ends (seconds since 1970), None when nothing waits.
        ended: every container has ended for good.
    """

    start: tuple[str, ...] = ()
    backing_off: tuple[tuple[str, float], ...] = ()
    wake_at_s: float | None = None
    ended: bool = False


def back_off_s(crashes: int) -> float:
    """Return the pause before the next restart: 0, 10, 20, 40 ... 300 s."""
    return 0.0 if crashes <= 0 else min(BACK_OFF_FIRST_S * 2.0 ** (crashes - 1), BACK_OFF_MAX_S)


def is_sidecar(container: Container) -> bool:
    """Return whether an init container keeps running beside the others."""
    return container.restart_policy == "Always"


def restarts(pod: Pod, container: Container, exit_code: int) -> bool:
    """Return whether a container is started again after that exit code: its rules, its policy, the pod's."""
    for rule in container.restart_policy_rules:
        codes = rule.get("exitCodes") or {}
        if (exit_code in codes.get("values", ())) == (codes.get("operator") == "In"):
            return True  # `Restart` is the one action
    policy = container.restart_policy or pod.spec.restart_policy
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def fails_pod(pod: Pod, container: Container, exit_code: int) -> bool:
    """Return whether the pod fails with an init container that ended so; it runs until it succeeds."""
    return exit_code != 0 and not restarts(pod, container, exit_code)


def next_step(pod: Pod, observed: Mapping[str, ObservedContainer], now_s: float) -> Step:
    """Return which containers to start; call it again on every change and at ``wake_at_s``.

    The caller does not call it for pods that are being stopped.
    """
    start: list[str] = []
    backing_off: list[tuple[str, float]] = []
    wakes: list[float] = []

    def try_again(known: ObservedContainer) -> None:
        assert known.ended is not None
        pause_s = back_off_s(known.crashes)
        due_s = known.ended.finished_at + pause_s
        if now_s >= due_s:
            start.append(known.name)
        else:
            backing_off.append((known.name, pause_s))
            wakes.append(due_s)

    def step(*, ended: bool = False) -> Step:
        added = [] if ended else [one.name for one in pod.spec.ephemeral_containers if is_new(one)]
        return Step((*start, *added), tuple(backing_off), min(wakes, default=None), ended)

    def is_new(container: Container) -> bool:
        known = observed.get(container.name)
        return known is None or known.state == "waiting"

    for container in pod.spec.init_containers:
        known = observed.get(container.name)
        sidecar = is_sidecar(container)
        if known is None or known.state == "waiting":
            start.append(container.name)
            return step()
        if known.state == "running":
            if sidecar and known.started:
                continue
            return step()
        assert known.ended is not None
        if sidecar:
            try_again(known)
            continue
        if known.ended.exit_code == 0:
            continue
        if fails_pod(pod, container, known.ended.exit_code):
            return step(ended=True)
        try_again(known)
        return step()

    left = 0
    for container in pod.spec.containers:
        known = observed.get(container.name)
        if known is None or known.state == "waiting":
            start.append(container.name)
            left += 1
        elif known.state == "running":
            left += 1
        elif known.ended is not None and restarts(pod, container, known.ended.exit_code):
            try_again(known)
            left += 1
    return step(ended=left == 0)


def initialized(pod: Pod, observed: Mapping[str, ObservedContainer]) -> bool:
    """Return whether every init container has succeeded (sidecars: has started)."""
    for container in pod.spec.init_containers:
        known = observed.get(container.name)
        if known is None:
            return False
        if is_sidecar(container):
            if not (known.started or known.before or known.ended):
                return False
        elif known.ended is None or known.ended.exit_code != 0:
            return False
    return True
