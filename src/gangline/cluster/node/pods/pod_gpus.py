"""The GPUs of one pod: taken before its place is made, all or none."""

from __future__ import annotations

from collections.abc import Callable

from gangline.api.core import Pod
from gangline.cluster.node.pods.pod_containers import PodContainers, Tell
from gangline.cluster.node.pods.sandbox import Sandbox
from gangline.devices.ledger import GpuChoiceError, GpusTakenError
from gangline.workloads.pending import GPUS_TAKEN


class PodGpus:
    """See the module's text.

    Args:
        sandbox: the pod's place, whose record names them.
        containers: of the pod; they are told what they wait for.
        tell: records an event: type, reason, message.
        wake: is called when GPUs come free.
    """

    def __init__(
        self, sandbox: Sandbox, containers: PodContainers, tell: Tell, wake: Callable[[], None]
    ) -> None:
        self._sandbox = sandbox
        self._containers = containers
        self._tell = tell
        self._wake = wake
        self._is_waiting = False

    def take(self, pod: Pod) -> bool:
        """Take the GPUs that the pod asks for; False when it has to wait for some to come free."""
        gpus = self._sandbox.context.gpus
        try:
            is_news = self._sandbox.take_gpus(pod)
        except GpuChoiceError as error:
            self._containers.all_wait("CreateContainerConfigError", str(error))
            self._tell("Warning", "GPUsRefused", str(error))
            return False
        except GpusTakenError as error:
            # Mostly a pod that has just ended still lets go of its own: nothing to tell anybody of yet.
            if self._is_waiting:
                self._containers.all_wait(GPUS_TAKEN, str(error))
            self._is_waiting = True
            gpus.call_when_free(pod.metadata.uid, self._wake)
            return False
        if is_news:
            ids = sorted({one for own in self._sandbox.record.gpus.values() for one in own})
            words = gpus.in_words(pod.spec.node_name, len(ids))
            self._tell("Normal", "GPUsAllocated", f"Allocated {words}: {', '.join(ids)}")
        return True
