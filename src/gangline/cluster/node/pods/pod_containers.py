"""The containers of one pod as they are: what the shim reports, what probes find, what waits and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gangline.api.core import Container, Pod
from gangline.cluster.node.pods import messages
from gangline.cluster.node.pods.observed_containers import (
    ObservedContainer,
    as_before,
    conclude,
    observe,
    observed_in_status,
)
from gangline.cluster.node.pods.pod_images import PULLING
from gangline.cluster.node.pods.pod_record import read_last_reports
from gangline.cluster.node.pods.probes import Prober, has_probes
from gangline.cluster.node.pods.sandbox import Sandbox

Tell = Callable[[str, str, str], None]


class PodContainers:
    """See the module's text.

    Args:
        pod: the pod; what its specification says of containers never changes.
        sandbox: its place.
        tell: records an event: type, reason, message.
        stop: is called with the name of a container that fails its liveness probe.
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
        stop: Callable[[str], None],
        changed: Callable[[], None],
        log: Any,
    ) -> None:
        self.observed: dict[str, ObservedContainer] = {}
        self.in_flight: set[str] = set()
        self._by_name = {one.name: one for one in (*pod.spec.containers, *pod.spec.init_containers)}
        self._mains = [one.name for one in pod.spec.containers]
        self._sandbox = sandbox
        self._tell = tell
        self._stop = stop
        self._changed = changed
        self._log = log
        self._probers: dict[str, Prober] = {}

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
            container = self.container(name)
            if has_probes(container):
                self._probers[name] = Prober(container, self._sandbox, self._on_probe, self._tell)
            else:
                self.observed[name] = msgspec.structs.replace(after, ready=True, started=True)
        elif after.state == "exited" and (prober := self._probers.pop(name, None)):
            prober.stop()

    def _on_probe(self, name: str, ready: bool, started: bool, alive: bool) -> None:
        known = self.observed.get(name)
        if known is None or known.state != "running":
            return
        self.observed[name] = msgspec.structs.replace(known, ready=ready, started=started)
        if not alive:
            self._stop(name)
        self._changed()

    def stop_probes(self) -> None:
        """Probe no more."""
        for prober in self._probers.values():
            prober.stop()
        self._probers.clear()
