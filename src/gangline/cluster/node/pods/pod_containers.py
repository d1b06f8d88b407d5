"""The containers of one pod as they are: what the shim reports, what probes find, what waits and why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import Container, Pod, all_containers
from gangline.cluster.node.pods import messages
from gangline.cluster.node.pods.handlers import HandlerRunner
from gangline.cluster.node.pods.observed_containers import (
    ObservedContainer,
    as_before,
    conclude,
    observe,
    observed_in_status,
)
from gangline.cluster.node.pods.pod_images import PULLING
from gangline.cluster.node.pods.pod_record import read_last_reports
from gangline.cluster.node.pods.probes import Prober, has_probes, probe_of
from gangline.cluster.node.pods.sandbox import Sandbox

HOOK_TIMEOUT_S = 24 * 3600.0
"""Of a hook after the start, which Kubernetes does not limit."""
AFTER_HOOK_S = 2.0
"""What a program has at least before SIGKILL when a hook has used up its time. As the kubelet."""

Tell = Callable[[str, str, str], None]


class PodContainers:
    """See the module's text.

    Args:
        pod: the pod.
        sandbox: its place.
        tell: records an event: type, reason, message.
        stop: is called with the name of a container that fails, and the grace period that its probe gives it.
        changed: is called after every change that comes from outside.
        log: of the pod.

    Attributes:
        observed: every container that there is something to say of.
        in_flight: containers that the shim was told to start and has not said a word of.
    """

    def __init__(
        self,
        pod: Pod,
        sandbox: Sandbox,
        *,
        tell: Tell,
        stop: Callable[[str, float | None], None],
        changed: Callable[[], None],
        log: Any,
    ) -> None:
        self.observed: dict[str, ObservedContainer] = {}
        self.in_flight: set[str] = set()
        self.know(pod)
        self._mains = [one.name for one in pod.spec.containers]
        self._sandbox = sandbox
        self._tell = tell
        self._stop = stop
        self._changed = changed
        self._log = log
        self._probers: dict[str, Prober] = {}
        self._hooks: dict[str, asyncio.Task[None]] = {}
        """Those that run, or have run before a stop, by container."""

    def know(self, pod: Pod) -> None:
        """Take a newer version of the pod, to which containers may have been added."""
        self._by_name = {one.name: one for one in all_containers(pod.spec)}

    def container(self, name: str) -> Container:
        """Return a container of the specification."""
        return self._by_name[name]

    @property
    def all_ended(self) -> bool:
        """Whether none runs or is about to."""
        return not self.in_flight and all(known.state != "running" for known in self.observed.values())

    def wait(self, name: str, reason: str, message: str) -> None:
        """Note why a container waits."""
        known = self.observed.get(name) or ObservedContainer(name)
        fresh = msgspec.structs.replace(
            known, state="waiting", waiting_reason=reason, waiting_message=message
        )
        if fresh != known and reason != PULLING:
            self._tell("Warning", "Failed", f"Error: {message}")
        self.observed[name] = fresh

    def all_wait(self, reason: str, message: str) -> None:
        """Note why all containers wait of which nothing is known yet."""
        for name in self._mains:
            if name not in self.observed:
                self.observed[name] = ObservedContainer(name, waiting_reason=reason, waiting_message=message)

    # Told by the shim

    def take_state(self, message: Mapping[str, Any]) -> None:
        """Take what the shim says of all its containers."""
        for name, report in message["containers"].items():
            before = self.observed.get(name)
            after = self._read(before, report)
            if report["state"] != "starting":
                self.in_flight.discard(name)
            self.observed[name] = after
            self._follow_probes(name, before, after)
            for note in report["notes"]:
                self._log.warning("container shows less of the machine", container=name, note=note)
        self._changed()

    def _read(self, before: ObservedContainer | None, report: dict[str, Any]) -> ObservedContainer:
        text, oom = "", False
        if report["state"] == "exited":
            oom = self._sandbox.was_out_of_memory(report)
            text = messages.termination_message(self.container(report["name"]), report, self._sandbox)
        return observe(before, report, message=text, oom=oom)

    # Another agent or shim was there before

    def recall(self, pod: Pod) -> None:
        """Believe what the pod's status says of containers that have run."""
        self.observed = observed_in_status(pod)

    def recall_before(self, pod: Pod) -> None:
        """Believe the pod's status of the attempts before those that a living shim knows."""
        self.observed = {name: as_before(known) for name, known in observed_in_status(pod).items()}

    def conclude(self, message: str, now_s: float) -> None:
        """Find out how all containers ended, now that nobody watches over them any more."""
        self.stop_probes()
        reports = read_last_reports(self._sandbox.folder)
        if reports is None:  # its folder was removed: what was to start may have
            for name in self.in_flight:
                known = self.observed.get(name) or ObservedContainer(name)
                self.observed[name] = msgspec.structs.replace(known, state="running")
        self.in_flight.clear()
        self.observed = conclude(self.observed, reports or {}, now_s=now_s, message=message, read=self._read)

    # Probes

    def _follow_probes(self, name: str, before: ObservedContainer | None, after: ObservedContainer) -> None:
        if after.state == "running" and (
            before is None or before.state != "running" or before.attempt != after.attempt
        ):
            self._tell("Normal", "Started", f"Started container {name}")
            if self._hook(name, "postStart") and not self._started_mark(name).exists():
                self._hooks[name] = asyncio.create_task(self._post_start(name))
            else:
                self._begin_probes(name)
        elif after.state == "exited":
            if prober := self._probers.pop(name, None):
                prober.stop()
            if hook := self._hooks.pop(name, None):
                hook.cancel()

    def _begin_probes(self, name: str) -> None:
        container = self.container(name)
        if has_probes(container):
            self._probers[name] = Prober(container, self._sandbox, self._on_probe, self._tell)
        else:
            self.observed[name] = msgspec.structs.replace(self.observed[name], ready=True, started=True)

    def _on_probe(self, name: str, ready: bool, started: bool, alive: bool) -> None:
        known = self.observed.get(name)
        if known is None or known.state != "running":
            return
        self.observed[name] = msgspec.structs.replace(known, ready=ready, started=started)
        if not alive:
            probe = probe_of(self.container(name), "liveness" if started else "startup") or {}
            self._stop(name, probe.get("terminationGracePeriodSeconds"))
        self._changed()

    def stop_probes(self) -> None:
        """Probe no more, and run no hooks."""
        for prober in self._probers.values():
            prober.stop()
        for hook in self._hooks.values():
            hook.cancel()
        self._probers.clear()
        self._hooks.clear()

    # Hooks

    def _hook(self, name: str, kind: str) -> dict[str, Any]:
        return (self.container(name).lifecycle or {}).get(kind) or {}

    def _started_mark(self, name: str) -> Path:
        """File that says that the hook after the start has ended; it goes with the attempt."""
        return self._sandbox.place().container_folder(name) / "post-started"

    async def _post_start(self, name: str) -> None:
        """Run the hook after the start; the container is not ready, nor probed, before its end."""
        failure = await HandlerRunner(self.container(name), self._sandbox).run(
            self._hook(name, "postStart"), HOOK_TIMEOUT_S
        )
        self._hooks.pop(name, None)
        if failure:
            self._tell("Warning", "FailedPostStartHook", f"PostStartHook failed: {failure}")
            self._stop(name, None)
        else:
            self._started_mark(name).touch()
            self._begin_probes(name)
        self._changed()

    def stop(self, name: str, grace_s: float) -> None:
        """Stop a container: its hook before the stop, then the signals, all within the grace period.

        Called again with a shorter period, what is left of the hook is cut off.
        """
        known, before = self.observed.get(name), self._hooks.get(name)
        if before is not None:
            before.cancel()
        is_first = before is None or not before.get_name().startswith("preStop")
        if is_first and grace_s > 0 and known and known.state == "running" and self._hook(name, "preStop"):
            self._hooks[name] = asyncio.create_task(self._pre_stop(name, grace_s), name=f"preStop {name}")
        else:
            self._send_stop(name, grace_s)

    async def _pre_stop(self, name: str, grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        failure = await HandlerRunner(self.container(name), self._sandbox).run(
            self._hook(name, "preStop"), grace_s
        )
        if failure:
            self._tell("Warning", "FailedPreStopHook", f"PreStopHook failed: {failure}")
        self._send_stop(name, max(grace_s - (loop.time() - began), AFTER_HOOK_S))

    def _send_stop(self, name: str, grace_s: float) -> None:
        if self._sandbox.shim is not None:
            self._sandbox.shim.send("stop", name=name, grace_s=grace_s)
