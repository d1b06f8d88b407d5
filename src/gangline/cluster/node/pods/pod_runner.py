"""Runs one pod from binding to its end: a level-based loop that is woken by every change.

Each turn compares what the pod should be (its object), what its containers are (``ObservedContainer``) and
the time, starts or stops containers, and writes the status when it has changed. What is computed is
computed by the pure modules ``restart_policy``, ``pod_status``, ``container_plan`` and ``volumes``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from gangline.api.core import Pod
from gangline.api.resources import PODS
from gangline.cluster.node.context import AgentContext
from gangline.cluster.node.device_plugins import AllocateError, DevicesTakenError
from gangline.cluster.node.ends import PodEnd, write_status
from gangline.cluster.node.pods import messages
from gangline.cluster.node.pods.container_env import ConfigError
from gangline.cluster.node.pods.container_plan import StartRefusedError, plan_container
from gangline.cluster.node.pods.observed_containers import ObservedContainer, as_report, begin
from gangline.cluster.node.pods.pod_containers import PodContainers
from gangline.cluster.node.pods.pod_gpus import PodGpus
from gangline.cluster.node.pods.pod_images import ImageUnavailableError, PodImages
from gangline.cluster.node.pods.pod_record import PodRecord
from gangline.cluster.node.pods.pod_status import FINAL_PHASES, PodFacets, phase_of, pod_status, same_status
from gangline.cluster.node.pods.privileges import forbidden_sysctl
from gangline.cluster.node.pods.removed_writes import describe_writes
from gangline.cluster.node.pods.restart_policy import next_step
from gangline.cluster.node.pods.sandbox import Sandbox, address_for
from gangline.cluster.node.pods.volumes import MountError, VolumePlan
from gangline.cluster.node.shim_client import ShimError
from gangline.errors import ClusterError
from gangline.kube.errors import ApiError
from gangline.workloads.removed_writes import REASON

RETRY_S = 2.0
"""A pod that waits for an object is looked at again after this time, and whenever an object changes."""

SHIM_LOST = "the process that watched over this container was killed"
REBOOTED = "the machine was restarted while this container ran"
RECORD_LOST = "the node agent has no record of this container; it is not started a second time"
PRIVILEGED_IGNORED = (
    "container {} runs without `privileged`: on the one-machine cluster it would be in charge of your machine"
)
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class PodRunner:
    """One pod of this agent; ``run`` ends when it has ended or is gone. ``refusal``: (reason, message)."""

    def __init__(
        self, context: AgentContext, pod: Pod, record: PodRecord | None, refusal: tuple[str, str] = ("", "")
    ) -> None:
        self.pod = pod
        self._context = context
        self._is_adopted = record is not None
        if record is None:
            record = PodRecord.of(pod, address=address_for(context, pod), started_at=context.now_s())
        self._sandbox = Sandbox(context, record)
        self._wake = asyncio.Event()
        self._images = PodImages(context.images, self._wake.set, self._event)
        self._is_gone = False
        self.is_ending = bool(refusal[0])
        self.is_told = True
        self._stop_sent: dict[str, float] = {}
        self._refresh = False
        self._failed = refusal
        self._has_lost_shim = False
        self._written: dict[str, Any] | None = None
        self._removed_writes: str | None = None
        self._log = context.log.bind(pod=pod.metadata.key, uid=pod.metadata.uid)
        self._containers = PodContainers(
            pod,
            self._sandbox,
            tell=self._event,
            stop=self._stop_unhealthy,
            changed=self._wake.set,
            log=self._log,
        )
        self._gpus = PodGpus(self._sandbox, self._containers, self._event, self._wake.set)

    @property
    def uses_session(self) -> bool:
        """Whether the pod runs in the session of a user."""
        return bool(self._sandbox.record.session)

    # Told from outside

    def update(self, pod: Pod) -> None:
        """Take a newer version of the pod."""
        old, new = self.pod.metadata, pod.metadata
        if (old.labels, old.annotations) != (new.labels, new.annotations):
            self._refresh = True  # volumes may show them
        self.pod = pod
        self._containers.know(pod)
        self._wake.set()

    def vanish(self) -> None:
        """The pod's object is gone: end everything at once."""
        self._is_gone = self.is_ending = True
        self._wake.set()

    def refresh(self) -> None:
        """An object that the pod refers to has changed."""
        self._refresh = True
        self._wake.set()

    async def run(self) -> None:
        """Run the pod; cancelling leaves its processes as they are."""
        try:
            await (self._adopt() if self._is_adopted else self._recall())
            while not await self._turn():
                await self._sleep()
        except asyncio.CancelledError:
            self._containers.stop_probes()
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
        if self._has_lost_shim:
            await self._bury()
        now_s = self._context.now_s()
        self._check_refusals(now_s)
        backing_off: dict[str, float] = {}
        self._wake_at_s: float | None = self._deadline_s()
        if not self._is_stopping:
            backing_off = await self._go_on(now_s)
        phase = phase_of(self.pod, self._containers.observed, self._view(backing_off))
        if phase in FINAL_PHASES and self._containers.all_ended:
            return await self._finish(now_s)
        if self._is_stopping:
            await self._write_status(now_s, backing_off)
            await self._stop_all()
            return False
        if not self._containers.in_flight:
            await self._write_status(now_s, backing_off)
        return False

    async def _go_on(self, now_s: float) -> dict[str, float]:
        """Start what is to be started; return the containers that back off."""
        if self._refresh and self._sandbox.shim is not None:
            self._refresh = False
            await self._refresh_volumes()
        step = next_step(self.pod, self._containers.observed, now_s)
        if step.start and (self._sandbox.shim is not None or await self._make_sandbox()):
            for name in step.start:
                if name not in self._containers.in_flight:
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
            if not self._gpus.take(self.pod):
                self._wake_by(self._context.now_s() + RETRY_S)
                return False
            await self._sandbox.take_devices(self.pod)
            await self._context.objects.ensure(self.pod)
            await self._context.objects.check_runtime(self.pod, self._context.isolation)
            ended = [report for known in self._containers.observed.values() if (report := as_report(known))]
            await self._sandbox.make(self.pod, self._sandbox.plan_volumes(self.pod), ended)
        except AllocateError as error:
            self._failed = ("UnexpectedAdmissionError", str(error))
            return False
        except DevicesTakenError as error:
            self._containers.all_wait("ContainerCreating", str(error))
            self._wake_by(self._context.now_s() + RETRY_S)
            return False
        except (MountError, ShimError, OSError, ClusterError) as error:
            reason = "FailedMount" if isinstance(error, MountError) else "FailedCreatePodSandBox"
            self._event("Warning", reason, str(error))
            self._containers.all_wait("ContainerCreating", str(error))
            self._wake_by(self._context.now_s() + RETRY_S)
            return False
        assert self._sandbox.shim is not None
        self._sandbox.shim.subscribe(self._on_state, self._on_shim_closed)
        for container in (*self.pod.spec.init_containers, *self.pod.spec.containers):
            if container.security_context.privileged:
                self._event("Warning", "PrivilegedIgnored", PRIVILEGED_IGNORED.format(container.name))
        return True

    async def _start(self, name: str) -> None:
        container = self._containers.container(name)
        known = self._containers.observed.get(name) or ObservedContainer(name)
        attempt = known.attempt + 1 if known.ended is not None else known.attempt
        try:
            image = await self._images.find(container)
            await self._context.objects.ensure(self.pod)
            session = await self._context.sessions.of(
                self.pod, started_at_s=self._sandbox.record.started_at, now_s=self._context.now_s()
            )
            spec = plan_container(
                self.pod,
                container,
                attempt,
                image,
                self._sandbox.place(name, session),
                self._sandbox.volumes,
                self._context.facts(self._sandbox.record.address, self.pod.spec.node_name),
                self._context.objects.lookup(self.pod.metadata.namespace),
            )
            self._sandbox.make_sub_paths(spec.pop("sub_paths"))
            self._sandbox.describe_oci(spec, container, image)
            if refusal := self._sandbox.hold_limits(spec, container):
                self._event("Warning", "LimitsNotHeld", refusal)
            if attempt and (
                lost := await describe_writes(self._sandbox, [name], goes_with=f"each start of `{name}`")
            ):
                self._event("Warning", REASON, lost)
            messages.prepare_container(spec, self._sandbox.folder)
        except ImageUnavailableError as error:
            self._wait(name, error.reason, str(error))
            return
        except ConfigError as error:
            self._wait(name, "CreateContainerConfigError", str(error))
            return
        except (StartRefusedError, MountError, OSError) as error:
            self._wait(name, "CreateContainerError", str(error))
            return
        except ApiError as error:  # the server is away: nothing to tell anybody of
            self._log.warning("container not started yet", container=name, error=str(error))
            self._wake_by(self._context.now_s() + RETRY_S)
            return
        if self._sandbox.shim is None:  # it died while the image was looked for
            self._wake.set()
            return
        self._containers.in_flight.add(name)
        if known.ended is not None:
            self._containers.observed[name] = begin(known, attempt)
        answer = self._sandbox.shim.send("start", container=spec)
        answer.add_done_callback(lambda done: self._on_start_answered(name, done))

    def _on_start_answered(self, name: str, answer: asyncio.Future[dict[str, Any]]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if error is not None and self._sandbox.shim is not None:  # of a lost one `_bury` judges
            self._containers.in_flight.discard(name)
            self._wait(name, "CreateContainerError", str(error))
            self._wake.set()

    def _wait(self, name: str, reason: str, message: str) -> None:
        self._containers.wait(name, reason, message)
        self._wake_by(self._context.now_s() + RETRY_S)

    # Stopping and ending

    @property
    def _is_stopping(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None or bool(self._failed[0])

    async def _stop_all(self) -> None:
        grace_s = self.pod.metadata.deletion_grace_period_seconds
        grace_s = self.pod.spec.termination_grace_period_seconds if grace_s is None else grace_s
        for name, known in self._containers.observed.items():
            if known.state == "running" or name in self._containers.in_flight:
                await self._stop(name, grace_s)

    async def _stop(self, name: str, grace_s: float) -> None:
        if self._stop_sent.get(name, float("inf")) <= grace_s or self._sandbox.shim is None:
            return
        if name not in self._stop_sent:
            self._event("Normal", "Killing", f"Stopping container {name}")
        self._stop_sent[name] = grace_s
        self._containers.stop(name, grace_s)

    def _stop_unhealthy(self, name: str, grace_s: float | None) -> None:
        if grace_s is None:
            grace_s = self.pod.spec.termination_grace_period_seconds
        self._stop_sent[name] = grace_s
        self._containers.stop(name, grace_s)

    async def _finish(self, now_s: float) -> bool:
        """Record the end, tell it, remove what the pod had; False when the end is neither recorded nor told.

        What cannot be told now is for the agent to tell from the record (see ``PodEnds``).
        """
        self.is_ending = True
        self._containers.stop_probes()
        self._images.close()
        if self._removed_writes is None:
            self._removed_writes = await describe_writes(self._sandbox)
            if self._removed_writes:
                self._event("Warning", REASON, self._removed_writes)
        if self._containers.observed or self._failed[0]:
            status = pod_status(self.pod, self._containers.observed, self._view({}), now_s)
            meta = self.pod.metadata
            end = PodEnd(meta.uid, meta.namespace, meta.name, now_s, status)
            is_kept = await asyncio.to_thread(self._context.ends.keep, end)
            is_told = await self._write_status(now_s, {})
            self.is_told = is_told
            if not (is_kept or is_told):
                self._wake_by(now_s + RETRY_S)
                return False
        await self._sandbox.remove()
        if self.pod.metadata.deletion_timestamp is not None:
            try:
                await self._context.ends.confirm_deletion(self.pod)
            except ApiError as error:
                self._log.warning("deletion not confirmed", error=str(error))
                self.is_told = False
        self._log.info("pod ended", phase=(self._written or {}).get("phase", ""))
        return True

    async def _take_down(self) -> None:
        self.is_ending = True
        self._containers.stop_probes()
        self._images.close()
        await self._sandbox.remove()
        self._log.info("pod removed")

    def _check_refusals(self, now_s: float) -> None:
        deadline_s = self._deadline_s()
        if self._failed[0]:
            return
        if deadline_s is not None and now_s >= deadline_s:
            self._failed = ("DeadlineExceeded", DEADLINE_MESSAGE)
        elif setting := forbidden_sysctl(self.pod):
            self._failed = ("SysctlForbidden", f'forbidden sysctl: "{setting}" not allowlisted')

    def _deadline_s(self) -> float | None:
        limit_s = self.pod.spec.active_deadline_seconds
        return None if limit_s is None else self._sandbox.record.started_at + limit_s

    # Told by the shim

    def _on_state(self, message: dict[str, Any]) -> None:
        for name, report in message["containers"].items():
            if report["state"] == "exited":
                self._stop_sent.pop(name, None)
        self._containers.take_state(message)

    def _on_shim_closed(self) -> None:
        self._log.warning("the pod's shim is gone; ending what it left")
        self._sandbox.shim = None
        self._has_lost_shim = True
        self._wake.set()

    # Taking over

    async def _bury(self, message: str = SHIM_LOST) -> None:
        """End what a shim that is gone left behind, and conclude how its containers ended."""
        self._has_lost_shim = False
        await asyncio.to_thread(self._context.sweep, self.pod.metadata.uid)
        self._stop_sent.clear()
        self._containers.conclude(message, self._context.now_s())

    async def _recall(self) -> None:
        """Begin with a pod of which there is no record: what its status says to have run is lost."""
        self._containers.recall(self.pod)
        if self._containers.observed:
            await self._bury(RECORD_LOST)

    async def _adopt(self) -> None:
        """Take over a pod of an agent before this one, or find out how it ended."""
        if not await self._sandbox.adopt(await self._plans_of_adopted()):
            self._containers.recall(self.pod)
            await self._bury(REBOOTED if self._sandbox.record.is_of_earlier_boot else SHIM_LOST)
            return
        assert self._sandbox.shim is not None
        self._containers.recall_before(self.pod)
        self._sandbox.shim.subscribe(self._on_state, self._on_shim_closed)
        self._refresh = True
        with contextlib.suppress(ShimError):  # it died just now, which `_bury` deals with
            state = await self._sandbox.shim.call("state")
            observed = self._containers.observed
            self._containers.observed = {n: one for n, one in observed.items() if n in state["containers"]}
            if not state.get("configured", True):
                await self._sandbox.end_shim()  # the agent was killed while it made this place: once more

    async def _plans_of_adopted(self) -> list[VolumePlan]:
        while True:
            try:
                await self._context.objects.ensure(self.pod)
                return self._sandbox.plan_volumes(self.pod)
            except MountError:
                return []
            except ApiError as error:
                self._log.warning("pod not adopted yet", error=str(error))
                await asyncio.sleep(RETRY_S)

    # Small things

    async def _refresh_volumes(self) -> None:
        try:
            await self._context.objects.ensure(self.pod)
            self._sandbox.refresh_volumes(self.pod, self._sandbox.plan_volumes(self.pod))
        except (MountError, KeyError) as error:
            self._log.warning("volumes not updated", error=str(error))
        except (ApiError, OSError) as error:  # a full disk may hold a token that ends soon
            self._log.warning("volumes not updated yet", error=str(error))
            self._refresh = True
            self._wake_by(self._context.now_s() + RETRY_S)

    async def _write_status(self, now_s: float, backing_off: dict[str, float]) -> bool:
        """Write the status if it has changed; False when the API does not have it yet."""
        status = pod_status(self.pod, self._containers.observed, self._view(backing_off), now_s)
        if self._written is not None and same_status(self._written, status):
            return True
        try:
            if await write_status(self._context.client, self.pod, status):
                self._written = status
            else:
                self.vanish()
            return True
        except ApiError as error:
            self._log.warning("status not written", error=str(error))
            self._wake_by(now_s + RETRY_S)
            return False

    def _view(self, backing_off: dict[str, float]) -> PodFacets:
        has_sandbox = self._sandbox.shim is not None
        return PodFacets(
            pod_ip=self._sandbox.record.address if has_sandbox or self._containers.observed else "",
            host_ip=self._context.host_ip(self.pod.spec.node_name),
            started_at_s=self._sandbox.record.started_at,
            sandbox=has_sandbox,
            stopping=self._is_stopping,
            failed_reason=self._failed[0],
            failed_message=self._failed[1],
            backing_off=backing_off,
            removed_writes=self._removed_writes or "",
        )

    def _event(self, type_: str, reason: str, message: str) -> None:
        self._context.recorder.event((PODS.api_version, PODS.kind, self.pod.metadata), type_, reason, message)

    def _wake_by(self, moment_s: float) -> None:
        self._wake_at_s = moment_s if self._wake_at_s is None else min(self._wake_at_s, moment_s)

    async def _sleep(self) -> None:
        timeout_s = None if self._wake_at_s is None else max(0.0, self._wake_at_s - self._context.now_s())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
