"""Startup, readiness and liveness probes of one container. Probe runs of one kind never overlap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gangline.api.core import Container
from gangline.cluster.node.pods.handlers import HandlerRunner

if TYPE_CHECKING:
    from gangline.cluster.node.pods.sandbox import Sandbox

_KINDS = ("startup", "liveness", "readiness")


def probe_of(container: Container, kind: str) -> dict[str, Any] | None:
    """Return one probe of a container, None when it has none."""
    found: dict[str, Any] | None = getattr(container, f"{kind}_probe")
    return found


def has_probes(container: Container) -> bool:
    """Return whether readiness or life of a container is probed."""
    return any(probe_of(container, kind) for kind in _KINDS)


class ProbeCounter:
    """Counts results of one probe against its thresholds. Pure."""

    def __init__(self, probe: dict[str, Any], *, initially: bool) -> None:
        self._success_threshold = int(probe.get("successThreshold") or 1)
        self._failure_threshold = int(probe.get("failureThreshold") or 3)
        self._run = 0
        self._last: bool | None = None
        self.value = initially

    def add(self, succeeded: bool) -> bool:
        """Take one result; return whether a threshold has just been reached."""
        self._run = self._run + 1 if succeeded == self._last else 1
        self._last = succeeded
        threshold = self._success_threshold if succeeded else self._failure_threshold
        if self._run < threshold:
            return False
        self.value = succeeded
        return self._run == threshold


class Prober:
    """Runs the probes of one running container until stopped.

    Args:
        container: with at least one probe.
        sandbox: of its pod.
        report: called with name, ready, started, alive on every change.
        event: records ``Unhealthy`` and ``Killing`` events.
    """

    def __init__(
        self,
        container: Container,
        sandbox: Sandbox,
        report: Callable[[str, bool, bool, bool], None],
        event: Callable[[str, str, str], None],
    ) -> None:
        self._container = container
        self._handlers = HandlerRunner(container, sandbox)
        self._report = report
        self._event = event
        self._ready = probe_of(container, "readiness") is None
        self._started = probe_of(container, "startup") is None
        self._tasks: list[asyncio.Task[Any]] = [asyncio.create_task(self._run())]

    def stop(self) -> None:
        """End all probing."""
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        self._tell()
        startup = probe_of(self._container, "startup")
        if startup is not None:
            if not await self._follow("startup", startup):
                return
            self._started = True
            self._tell()
        for kind in ("readiness", "liveness"):
            probe = probe_of(self._container, kind)
            if probe is not None:
                self._tasks.append(asyncio.create_task(self._follow(kind, probe)))

    def _tell(self, *, alive: bool = True) -> None:
        self._report(self._container.name, self._ready and self._started, self._started, alive)

    async def _follow(self, kind: str, probe: dict[str, Any]) -> bool:
        """Probe until the container is to be killed (False) or has started (True, startup only)."""
        verdict = ProbeCounter(probe, initially=kind == "liveness")
        await asyncio.sleep(float(probe.get("initialDelaySeconds") or 0))
        while True:
            failure = await self._handlers.run(probe, float(probe.get("timeoutSeconds") or 1))
            if failure:
                name = kind.capitalize()
                self._event("Warning", "Unhealthy", f"{name} probe failed: {failure}")
            decided = verdict.add(not failure)
            if kind == "startup" and decided and verdict.value:
                return True
            if kind in ("startup", "liveness") and decided and not verdict.value:
                text = f"Container {self._container.name} failed {kind} probe, will be restarted"
                self._event("Normal", "Killing", text)
                self._tell(alive=False)
                return False
            if kind == "readiness" and decided and verdict.value != self._ready:
                self._ready = verdict.value
                self._tell()
            await asyncio.sleep(float(probe.get("periodSeconds") or 10))
