"""Why a gang waits, answered by the scheduler itself: it knows nodes and pods already.

A command that reads 80,000 pods to find out spends half a minute on what the scheduler keeps up to date. The
answer is that of :func:`gangline.placement.explanation.explain_gang`, the one function that says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gangline import clock
from gangline.kube.http_paths import PathAnswer
from gangline.placement import Explanation, Gang, Policy, Workload
from gangline.placement.explanation import explain_gang
from gangline.scheduler.explained.published import Published

if TYPE_CHECKING:
    from gangline.scheduler.scheduler import Scheduler
    from gangline.scheduler.state import SchedulerState

PATH = "/explain"

BUSY_SHARE = 0.25
"""Of a scheduler's time that answers may take; who asks meanwhile waits for its turn."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WhyQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked.

    Attributes:
        gang: its key.
        workload: for which speeds are predicted.
    """

    gang: str
    workload: Workload

    @property
    def parameters(self) -> dict[str, str]:
        """Of the path."""
        return {"question": msgspec.json.encode(self).decode()}

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> WhyQuestion:
        """Return the question of a request.

        Raises:
            msgspec.MsgspecError: it is none.
        """
        return msgspec.json.decode(parameters.get("question", ""), type=cls)


class SchedulerAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is answered.

    Attributes:
        as_of: up to when the scheduler knows the cluster.
        holder: its identity, as on its Lease.
        explanation: None when the gang does not wait.
        pods: how many hold room in the cluster.
    """

    as_of: datetime
    holder: str = ""
    explanation: Explanation | None = None
    pods: int = 0


class AnswersAt(NamedTuple):
    """Where a scheduler answers.

    Attributes:
        holder: its identity.
        port: on this machine; 0 where it is asked through the API server.
        path: through the API server; empty on this machine.
    """

    holder: str
    port: int
    path: str


def answers_at(lease: Mapping[str, Any], host: str) -> AnswersAt | None:
    """Return where the holder of a Lease answers; None where it does not, or only on another machine. Pure.

    Its pod is asked through the API server, which checks the right to it: ``get pods/proxy`` there.

    Args:
        lease: in wire form.
        host: the name of this machine.
    """
    said, holder = Published.of(lease), str((lease.get("spec") or {}).get("holderIdentity") or "")
    address, _, port = (said.answers if said else "").rpartition(":")
    if not holder or not port.isdecimal():
        return None
    name = holder.rpartition("_")[0]
    if address in LOOPBACK:
        return AnswersAt(holder, int(port), "") if name == host else None
    namespace = lease["metadata"]["namespace"]
    return AnswersAt(holder, 0, f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy{PATH}")


class Answers:
    """Answers one question at a time.

    Args:
        scheduler: that works now; None while another process leads.
        holder: identity of this one.
    """

    def __init__(self, holder: str) -> None:
        self.scheduler: Scheduler | None = None
        self._holder = holder
        self._turn = asyncio.Lock()
        self._next_s = 0.0

    async def answer(self, parameters: Mapping[str, str]) -> PathAnswer:
        """Answer a request; at most a quarter of the time goes into answers."""
        try:
            question = WhyQuestion.of(parameters)
        except msgspec.MsgspecError as error:
            return PathAnswer(400, f"question: {error}\n".encode())
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(max(0.0, self._next_s - loop.time()))
            scheduler = self.scheduler
            if scheduler is None or not scheduler.is_synced:
                return PathAnswer(503, b"this scheduler does not work now, or has not seen the cluster yet\n")
            began_s = loop.time()
            found = scheduler.explain(question.gang, question.workload)
            body = msgspec.json.encode(msgspec.structs.replace(found, holder=self._holder))
            ended_s = loop.time()
            self._next_s = ended_s + (ended_s - began_s) * (1 / BUSY_SHARE - 1)
        return PathAnswer(200, body, "application/json")


def answer(
    state: SchedulerState,
    gangs: Sequence[Gang],
    key: str,
    policy: Policy,
    workload: Workload,
    behind_s: float,
) -> SchedulerAnswer:
    """Return why a gang waits; what is known stays as it is.

    Args:
        state: what is known.
        gangs: that a pass would be about now.
        key: of the gang.
        policy: of that pass.
        workload: for which speeds are predicted.
        behind_s: for how long changes may have been missed.
    """
    allocations, moment = state.allocations, clock.now()
    leaving, pods = set(allocations.leaving), len(allocations)
    try:
        found = explain_gang(
            state.table(), allocations, gangs, key, now=moment, policy=policy, workload=workload
        )
    finally:
        allocations.leaving.intersection_update(leaving)
        for uid in [pod.uid for gang in gangs for pod in gang.pods if allocations.get(pod.uid)]:
            state.give_back(uid)  # placed in that pass
    return SchedulerAnswer(as_of=moment - timedelta(seconds=behind_s), explanation=found, pods=pods)
