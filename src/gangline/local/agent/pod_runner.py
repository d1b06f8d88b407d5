"""Runs one pod from binding to its end: a level-based loop that is woken by every change.

Each turn compares what the pod should be (its object), what its containers are (``Observed``) and the time,
starts or stops containers, and writes the status when it has changed. What is computed is computed by the
pure modules ``restart``, ``status``, ``container_plan`` and ``volumes``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from gangline.api.core import Container, Pod
from gangline.api.resources import PODS
from gangline.devices.ledger import GpuChoiceError, GpusTakenError
from gangline.errors import ClusterError
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.local.agent import messages
from gangline.local.agent.container_plan import StartRefusedError, plan_container
from gangline.local.agent.context import AgentContext
from gangline.local.agent.env import ConfigError
from gangline.local.agent.observed import Observed, begin, lost, observe
from gangline.local.agent.pod_images import PULLING, ImageUnavailableError, PodImages
from gangline.local.agent.pod_record import PodRecord, read_last_state
from gangline.local.agent.probes import Prober, has_probes
from gangline.local.agent.restart import next_step
from gangline.local.agent.sandbox import Sandbox
from gangline.local.agent.shim import processes
from gangline.local.agent.shim_client import ShimError
from gangline.local.agent.status import FINAL_PHASES, PodView, phase_of, pod_status, same_status
from gangline.local.agent.volumes import MountError

RETRY_S = 2.0
"""A pod that waits for an object is looked at again after this time, and whenever an object changes."""

SHIM_LOST = "the process that watched over this container was killed"
PRIVILEGED_IGNORED = (
    "container {} runs without `privileged`: on the one-machine cluster it would be in charge of your machine"
)
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class PodRunner:
    """One pod of this agent; ``run`` ends when the pod has ended or is gone."""

    def __init__(self, context: AgentContext, pod: Pod, record: PodRecord | None = None) -> None:
        self.pod = pod
        self._context = context
        self._is_adopted = record is not None
        if record is None:
            address = context.host_ip if pod.spec.host_network else context.addresses.take()
            record = PodRecord.of(pod, address=address, started_at=context.now_s())
        self._sandbox = Sandbox(context, record)
        self._wake = asyncio.Event()
        self._images = PodImages(context.images, self._wake.set, self._event)
        self._observed: dict[str, Observed] = {}
        self._in_flight: set[str] = set()
        self._probers: dict[str, Prober] = {}
        self._is_gone = False
        self.is_ending = False
        self._stop_sent: dict[str, float] = {}
        self._refresh = False
        self._is_waiting_for_gpus = False
        self._failed_reason = ""
        self._written: dict[str, Any] | None = None
        self._log = context.log.bind(pod=pod.metadata.key, uid=pod.metadata.uid)

    # Told from outside

    def update(self, pod: Pod) -> None:
        """Take a newer version of the pod."""
        self.pod = pod
        self._wake.set()

    def vanish(self) -> None:
        """The pod's object is gone: end everything at once."""
        self._is_gone = True
        self._wake.set()

    def refresh(self) -> None:
        """An object that the pod refers to has changed."""
        self._refresh = True
        self._wake.set()

    async def run(self) -> None:
        """Run the pod; cancelling leaves its processes as they are."""
        try:
            if self._is_adopted:
                await self._adopt()
            while not await self._turn():
                await self._sleep()
        except asyncio.CancelledError:
            self._stop_probes()
            self._images.close()
            if self._sandbox.shim is not None:
                await self._sandbox.shim.close()
            raise

    # One turn

    async def _turn(self) -> bool:
        self._wake.clear()
        if self._is_gone:
            await self._take_down()
            return True
        now_s = self._context.now_s()
        self._check_deadline(now_s)
        backing_off: dict[str, float] = {}
        self._wake_at_s: float | None = self._deadline_s()
        if self._is_stopping:
            await self._write_status(now_s, backing_off)
            await self._stop_all()
        else:
            backing_off = await self._go_on(now_s)
        if phase_of(self.pod, self._observed, self._view(backing_off)) in FINAL_PHASES and self._all_ended:
            return await self._finish(now_s)
        if not self._in_flight:
            await self._write_status(now_s, backing_off)
        return False

    async def _go_on(self, now_s: float) -> dict[str, float]:
        """Start what is to be started; return the containers that back off."""
        if self._refresh and self._sandbox.shim is not None:
            self._refresh = False
            await self._refresh_volumes()
        step = next_step(self.pod, self._observed, now_s)
        if step.start and (self._sandbox.shim is not None or await self._make_sandbox()):
            for name in step.start:
                if name not in self._in_flight:
                    await self._start(name)
        if step.ended:
            await self._stop_all()  # sidecars outlive the main containers, not the pod
        if step.wake_at_s is not None:
            self._wake_by(step.wake_at_s)
        for name, pause_s in step.backing_off:
            if not any(known == name for known in step.start):
                text = f"Back-off restarting failed container {name}"
                self._event("Warning", "BackOff", f"{text} in pod {self.pod.metadata.name} ({pause_s:.0f} s)")
        return dict(step.backing_off)

    async def _make_sandbox(self) -> bool:
        try:
            if not self._take_gpus():
                return False
            await self._context.objects.ensure(self.pod)
            await self._sandbox.make(self.pod, self._sandbox.plan_volumes(self.pod))
        except (MountError, ShimError, OSError, ClusterError) as error:
            reason = "FailedMount" if isinstance(error, MountError) else "FailedCreatePodSandBox"
            self._event("Warning", reason, str(error))
            self._all_wait("ContainerCreating", str(error))
            self._wake_by(self._context.now_s() + RETRY_S)
            return False
        assert self._sandbox.shim is not None
        self._sandbox.shim.subscribe(self._on_state, self._on_shim_closed)
        for container in (*self.pod.spec.init_containers, *self.pod.spec.containers):
            if container.security_context.privileged:
                self._event("Warning", "PrivilegedIgnored", PRIVILEGED_IGNORED.format(container.name))
        return True

    def _take_gpus(self) -> bool:
        """Take the GPUs that the pod asks for; False when it has to wait for some to come free."""
        uid, node = self.pod.metadata.uid, self.pod.spec.node_name
        try:
            is_news = self._sandbox.take_gpus(self.pod)
        except GpuChoiceError as error:
            self._all_wait("CreateContainerConfigError", str(error))
            self._event("Warning", "GPUsRefused", str(error))
            self._wake_by(self._context.now_s() + RETRY_S)
            return False
        except GpusTakenError as error:
            # Mostly a pod that has just ended still lets go of its own: nothing to tell anybody of yet.
            if self._is_waiting_for_gpus:
                self._all_wait("ContainerCreating", str(error))
            self._is_waiting_for_gpus = True
            self._context.gpus.call_when_free(uid, self._wake.set)
            self._wake_by(self._context.now_s() + RETRY_S)
            return False
        if is_news:
            ids = sorted({one for own in self._sandbox.record.gpus.values() for one in own})
            words = self._context.gpus.in_words(node, len(ids))
            self._event("Normal", "GPUsAllocated", f"Allocated {words}: {', '.join(ids)}")
        return True

    async def _start(self, name: str) -> None:
        container = self._container(name)
        known = self._observed.get(name) or Observed(name)
        attempt = known.attempt + 1 if known.ended is not None else known.attempt
        try:
            image = await self._images.find(container)
            await self._context.objects.ensure(self.pod)
            account = self._context.objects.account_folder(self.pod)
            spec = plan_container(
                self.pod,
                container,
                attempt,
                image,
                self._sandbox.place(account, self._sandbox.gpu_variables(name)),
                self._sandbox.volumes,
                self._context.facts(self._sandbox.record.address),
                self._context.objects.lookup(self.pod.metadata.namespace),
            )
            self._sandbox.describe_oci(spec, container, image)
            messages.prepare_container(spec, self._sandbox.folder)
        except ImageUnavailableError as error:
            self._wait(name, error.reason, str(error))
            return
        except ConfigError as error:
            self._wait(name, "CreateContainerConfigError", str(error))
            return
        except (StartRefusedError, OSError) as error:
            self._wait(name, "CreateContainerError", str(error))
            return
        self._in_flight.add(name)
        if known.ended is not None:
            self._observed[name] = begin(known, attempt)
        assert self._sandbox.shim is not None
        self._sandbox.shim.send("start", container=spec)

    def _wait(self, name: str, reason: str, message: str) -> None:
        known = self._observed.get(name) or Observed(name)
        fresh = msgspec.structs.replace(
            known, state="waiting", waiting_reason=reason, waiting_message=message
        )
        if fresh != known and reason != PULLING:
            self._event("Warning", "Failed", f"Error: {message}")
        self._observed[name] = fresh
        self._wake_by(self._context.now_s() + RETRY_S)

    def _all_wait(self, reason: str, message: str) -> None:
        for container in self.pod.spec.containers:
            if container.name not in self._observed:
                self._observed[container.name] = Observed(
                    container.name, waiting_reason=reason, waiting_message=message
                )

    # Stopping and ending

    @property
    def _is_stopping(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None or bool(self._failed_reason)

    @property
    def _all_ended(self) -> bool:
        return not self._in_flight and all(known.state != "running" for known in self._observed.values())

    async def _stop_all(self) -> None:
        grace_s = self.pod.metadata.deletion_grace_period_seconds
        grace_s = self.pod.spec.termination_grace_period_seconds if grace_s is None else grace_s
        for name, known in self._observed.items():
            if known.state == "running" or name in self._in_flight:
                await self._stop(name, grace_s)

    async def _stop(self, name: str, grace_s: float) -> None:
        if self._stop_sent.get(name, float("inf")) <= grace_s or self._sandbox.shim is None:
            return
        if name not in self._stop_sent:
            self._event("Normal", "Killing", f"Stopping container {name}")
        self._stop_sent[name] = grace_s
        self._sandbox.shim.send("stop", name=name, grace_s=grace_s)

    async def _finish(self, now_s: float) -> bool:
        self.is_ending = True
        self._stop_probes()
        self._images.close()
        if self._observed or self._failed_reason:
            await self._write_status(now_s, {})
        await self._sandbox.remove()
        if self.pod.metadata.deletion_timestamp is not None:
            await self._confirm_deletion()
        self._log.info("pod ended", phase=(self._written or {}).get("phase", ""))
        return True

    async def _take_down(self) -> None:
        self.is_ending = True
        self._stop_probes()
        self._images.close()
        await self._sandbox.remove()
        self._log.info("pod removed")

    async def _confirm_deletion(self) -> None:
        meta = self.pod.metadata
        try:
            await self._context.client.delete(PODS, meta.name, meta.namespace, grace_period_s=0, uid=meta.uid)
        except (NotFound, Conflict):
            return
        except ApiError as error:
            self._log.warning("deletion not confirmed", error=str(error))

    def _check_deadline(self, now_s: float) -> None:
        deadline_s = self._deadline_s()
        if deadline_s is not None and now_s >= deadline_s and not self._failed_reason:
            self._failed_reason = "DeadlineExceeded"

    def _deadline_s(self) -> float | None:
        limit_s = self.pod.spec.active_deadline_seconds
        return None if limit_s is None else self._sandbox.record.started_at + limit_s

    # Told by the shim

    def _on_state(self, message: dict[str, Any]) -> None:
        for name, report in message["containers"].items():
            before = self._observed.get(name)
            text, oom = "", False
            if report["state"] == "exited":
                oom = self._sandbox.was_out_of_memory(report)
                text = messages.termination_message(self._container(name), report, self._sandbox)
            after = observe(before, report, message=text, oom=oom)
            if report["state"] != "starting":
                self._in_flight.discard(name)
            self._observed[name] = after
            self._follow_probes(name, before, after)
            for note in report["notes"]:
                self._log.warning("container shows less of the machine", container=name, note=note)
        self._wake.set()

    def _follow_probes(self, name: str, before: Observed | None, after: Observed) -> None:
        if after.state == "running" and (
            before is None or before.state != "running" or before.attempt != after.attempt
        ):
            self._event("Normal", "Started", f"Started container {name}")
            container = self._container(name)
            if has_probes(container):
                self._probers[name] = Prober(container, self._sandbox, self._on_probe, self._event)
            else:
                self._observed[name] = msgspec.structs.replace(after, ready=True, started=True)
        elif after.state == "exited":
            self._stop_sent.pop(name, None)
            if prober := self._probers.pop(name, None):
                prober.stop()

    def _on_probe(self, name: str, ready: bool, started: bool, alive: bool) -> None:
        known = self._observed.get(name)
        if known is None or known.state != "running":
            return
        self._observed[name] = msgspec.structs.replace(known, ready=ready, started=started)
        if not alive and self._sandbox.shim is not None:
            self._stop_sent[name] = self.pod.spec.termination_grace_period_seconds
            self._sandbox.shim.send("stop", name=name, grace_s=self._stop_sent[name])
        self._wake.set()

    def _on_shim_closed(self) -> None:
        self._log.warning("the pod's shim is gone; ending what it left")
        self._sandbox.shim = None
        asyncio.get_running_loop().run_in_executor(None, processes.sweep, self.pod.metadata.uid)
        self._lose_all()
        self._wake.set()

    def _lose_all(self) -> None:
        now_s = self._context.now_s()
        self._stop_probes()
        for name in self._in_flight | set(self._observed):
            known = self._observed.get(name) or Observed(name, started_at=now_s)
            if known.state == "running" or name in self._in_flight:
                self._observed[name] = lost(known, now_s=now_s, message=SHIM_LOST)
        self._in_flight.clear()

    async def _adopt(self) -> None:
        """Take over a pod of an agent before this one, or find out how it ended."""
        await self._context.objects.ensure(self.pod)
        try:
            plans = self._sandbox.plan_volumes(self.pod)
        except MountError:
            plans = []
        found = await self._sandbox.adopt(plans)
        if found and self._sandbox.shim is not None:
            self._sandbox.shim.subscribe(self._on_state, self._on_shim_closed)
            self._refresh = True
            with contextlib.suppress(ShimError):  # it died just now, which `_on_shim_closed` deals with
                await self._sandbox.shim.call("state")
            return
        await asyncio.to_thread(processes.sweep, self.pod.metadata.uid)
        for name, report in read_last_state(self._sandbox.folder).get("containers", {}).items():
            known = observe(None, report)
            now_s = self._context.now_s()
            self._observed[name] = (
                known if known.state == "exited" else lost(known, now_s=now_s, message=SHIM_LOST)
            )

    # Small things

    async def _refresh_volumes(self) -> None:
        try:
            await self._context.objects.ensure(self.pod)
            self._sandbox.refresh_volumes(self.pod, self._sandbox.plan_volumes(self.pod))
        except (MountError, OSError, KeyError) as error:
            self._log.warning("volumes not updated", error=str(error))

    async def _write_status(self, now_s: float, backing_off: dict[str, float]) -> None:
        status = pod_status(self.pod, self._observed, self._view(backing_off), now_s)
        if self._written is not None and same_status(self._written, status):
            return
        meta = self.pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            await self._context.client.patch(
                PODS, meta.name, patch, meta.namespace, kind="strategic", subresource="status"
            )
            self._written = status
        except (NotFound, Conflict):
            self._is_gone = True
            self._wake.set()
        except ApiError as error:
            self._log.warning("status not written", error=str(error))
            self._wake_by(now_s + RETRY_S)

    def _view(self, backing_off: dict[str, float]) -> PodView:
        has_sandbox = self._sandbox.shim is not None
        return PodView(
            pod_ip=self._sandbox.record.address if has_sandbox or self._observed else "",
            host_ip=self._context.host_ip,
            started_at_s=self._sandbox.record.started_at,
            sandbox=has_sandbox,
            stopping=self._is_stopping,
            failed_reason=self._failed_reason,
            failed_message=DEADLINE_MESSAGE if self._failed_reason else "",
            backing_off=backing_off,
        )

    def _container(self, name: str) -> Container:
        everyone = (*self.pod.spec.containers, *self.pod.spec.init_containers)
        return next(container for container in everyone if container.name == name)

    def _stop_probes(self) -> None:
        for prober in self._probers.values():
            prober.stop()
        self._probers.clear()

    def _event(self, type_: str, reason: str, message: str) -> None:
        self._context.recorder.event(("v1", "Pod", self.pod.metadata), type_, reason, message)

    def _wake_by(self, moment_s: float) -> None:
        self._wake_at_s = moment_s if self._wake_at_s is None else min(self._wake_at_s, moment_s)

    async def _sleep(self) -> None:
        timeout_s = None if self._wake_at_s is None else max(0.0, self._wake_at_s - self._context.now_s())
        try:
            await asyncio.wait_for(self._wake.wait(), timeout_s)
        except TimeoutError:
            return
