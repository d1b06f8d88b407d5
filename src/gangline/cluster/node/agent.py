"""The node agent: one process for all nodes of the one-machine cluster.

It watches pods and gives each one that is bound to a node of ours to a ``PodRunner``. At start it adopts the
pods that an agent before it left running, and removes what belongs to no pod any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gangline import clock
from gangline.api.core import ConfigMap, Node, Pod, Secret, Service, host_ports
from gangline.cluster.images.image_map import MAP_NAME, MAP_NAMESPACE
from gangline.cluster.node.agent_metrics import agent_metrics
from gangline.cluster.node.checkpoint_times import tell_checkpoint_times
from gangline.cluster.node.context import AgentContext, affected
from gangline.cluster.node.isolation import peer_of
from gangline.cluster.node.leftovers import (
    SWEEP_PERIOD_S,
    TOKEN_CHECK_PERIOD_S,
    choose_ends,
    sweep_logs,
    sweep_sockets,
)
from gangline.cluster.node.node_status import NodeKeeper, is_ours
from gangline.cluster.node.pods.control_groups import remove_cgroups
from gangline.cluster.node.pods.pod_record import PodRecord, read_record, read_records
from gangline.cluster.node.pods.pod_runner import PodRunner
from gangline.cluster.node.pods.sandbox import Sandbox
from gangline.cluster.node.shim_client import ShimConnection
from gangline.cluster.runs.history import History
from gangline.kube.cache import Cache
from gangline.kube.errors import ApiError, Unavailable
from gangline.kube.http_paths import PathAnswer, serve_paths_at
from gangline.kube.queue import WorkQueue, work

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gangline.kube.metrics import MetricsPage

END_TIMEOUT_S = 5.0
RETRY_S = 2.0
TELL_RETRY_S = 1.0
"""How long after a failed try an end is told again; the server may be back any moment."""
TELLERS = 8
PORTS_TAKEN = (
    "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
)
SESSION_KEPT_S = 1.0
"""How long after a pod's end its job is asked whether it is over."""


@dataclass(frozen=True, slots=True)
class FoundPods:
    """What an agent found at its start.

    Attributes:
        adopted: pods that ran on.
        ended: pods that had ended, or whose shim had been killed, meanwhile.
        removed: pods that no longer exist in the API, with all they had left.
        links: network links of no pod.
    """

    adopted: int = 0
    ended: int = 0
    removed: int = 0
    links: int = 0


class NodeAgent:
    """See the module's text; construct it in a running loop with caches that are not running yet."""

    def __init__(
        self,
        context: AgentContext,
        keeper: NodeKeeper,
        *,
        pods: Cache[Pod],
        nodes: Cache[Node],
        config_maps: Cache[ConfigMap],
        secrets: Cache[Secret],
        services: Cache[Service],
    ) -> None:
        self._context = context
        self._keeper = keeper
        self._pods = pods
        self._nodes = nodes
        self._config_maps = config_maps
        self._secrets = secrets
        self._services = services
        self._runners: dict[str, PodRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._over: WorkQueue[str] = WorkQueue()
        self._is_open = False
        self._pod_ended = asyncio.Event()
        self._node_changes: asyncio.Queue[Node] = asyncio.Queue()
        self.found = FoundPods()

    async def run(self) -> None:
        """Serve until cancelled; pods go on without it."""
        self._context.gpus.on_change = self._context.plugins.on_change = self._on_gpus
        self._nodes.on_change(self._on_node)
        self._pods.on_change(self._on_pod)
        self._config_maps.on_change(lambda _, new: self._on_object("cm", new))
        self._secrets.on_change(lambda _, new: self._on_object("secret", new))
        caches: list[Cache[Any]] = [
            *(self._nodes, self._config_maps, self._secrets, self._services, self._pods)
        ]
        answers = {"/metrics": self._figures}
        try:
            async with (
                serve_paths_at(self._context.paths.agent_socket, answers),
                asyncio.TaskGroup() as services,
            ):
                for cache in caches:
                    services.create_task(cache.run())
                await asyncio.gather(*(self._wait_synced(cache) for cache in caches))
                await self._take_over()
                services.create_task(self._serve_nodes())
                services.create_task(work(self._over, self._tell, workers=TELLERS))
                if self._context.network is not None:
                    services.create_task(self._context.network.way_out.keep(self._context.log))
                services.create_task(self._keeper.keep_leases())
                services.create_task(self._sweep())
                services.create_task(self._renew_tokens())
                services.create_task(self._sweep_sessions())
                services.create_task(self._context.own_fork_server.watch())
                services.create_task(self._context.gpus.keep_claim())
                services.create_task(self._context.rank_reports.run(self._context.recorder, self._pods.get))
                services.create_task(
                    tell_checkpoint_times(self._context.client, self._context.paths, self._running)
                )
        finally:
            await self._let_go()
            await self._context.images.close()
            await self._context.recorder.close()
            await self._context.plugins.close()
            self._context.gpus.close()

    @cached_property
    def _page(self) -> MetricsPage:
        from gangline.kube.metrics import MetricsPage  # late: prometheus_client

        return MetricsPage(self._metrics, self._context.client.answers)

    def _figures(self) -> PathAnswer:
        return self._page.answer()

    def _metrics(self) -> Iterator[Metric]:
        nodes = [node for node in self._nodes.items() if is_ours(node)]
        return agent_metrics(nodes, self._running(), self._context.gpus)

    async def _wait_synced(self, cache: Cache[Any]) -> None:
        """Wait for the server for as long as it takes; pods run on meanwhile."""
        while True:
            try:
                return await cache.wait_synced()
            except Unavailable as error:
                self._context.log.warning("no list yet", error=str(error))

    async def _let_go(self) -> None:
        """Let go of running pods; finish the removal of those that are ending."""
        ending = [self._tasks[uid] for uid, runner in self._runners.items() if runner.is_ending]
        running = [task for task in self._tasks.values() if task not in ending]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if ending:
            await asyncio.wait(ending, timeout=END_TIMEOUT_S)

    # Changes

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None and is_ours(new):
            self._node_changes.put_nowait(new)
            if old is None and self._is_open:
                for pod in self._pods.items():
                    self._on_pod(None, pod)
        elif old is not None:
            self._keeper.drop(old.metadata.name)

    def _on_gpus(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is not None and is_ours(node):
            self._node_changes.put_nowait(node)

    async def _serve_nodes(self) -> None:
        while True:
            node = await self._node_changes.get()
            try:
                await self._keeper.take(node)
                self._context.plugins.refresh(node.metadata.name)
            except ApiError as error:
                self._context.log.warning(
                    "node status not written", node=node.metadata.name, error=str(error)
                )
                asyncio.get_running_loop().call_later(RETRY_S, self._node_changes.put_nowait, node)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        replaced = old is not None and (new is None or new.metadata.uid != old.metadata.uid)
        if old is not None and replaced and (runner := self._runners.get(old.metadata.uid)):
            runner.vanish()
        if new is None or not self._is_open:
            return
        uid = new.metadata.uid
        if runner := self._runners.get(uid):
            runner.update(new)
        elif self._is_mine(new):
            if self._is_over(new):
                self._over.add(new.metadata.key)
            else:
                record = read_record(self._context.paths.pods / uid)
                refusal = ("", "") if record is not None else self._refusal(new)
                self._begin(PodRunner(self._context, new, record, refusal))

    def _refusal(self, pod: Pod) -> tuple[str, str]:
        """Return why a pod's node does not take it, as a kubelet says it: a port of the node is taken."""
        wanted = host_ports(pod.spec)
        for runner in self._runners.values() if wanted else ():
            if runner.pod.spec.node_name != pod.spec.node_name or runner.is_ending:
                continue
            for protocol, number, address in host_ports(runner.pod.spec):
                if any(
                    (protocol, number) == port[:2] and (address == port[2] or not (address and port[2]))
                    for port in wanted
                ):
                    return "NodePorts", PORTS_TAKEN
        return "", ""

    def _is_over(self, pod: Pod) -> bool:
        """Whether a pod has ended, for the API or by its record; it is not to be started."""
        return pod.is_finished or pod.metadata.uid in self._context.ends

    async def _tell(self, key: str) -> float | None:
        """Tell the API what it does not know of a pod that is over; returns when to try again."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.uid in self._runners or not self._is_over(pod):
            return None
        try:
            await self._context.ends.tell(pod)
        except ApiError as error:
            self._context.log.warning("end of a pod not told", pod=key, error=str(error))
            return TELL_RETRY_S
        # A cache that is behind tells of no change when the older state of a pod that it has is put back.
        return None if pod.is_finished else TELL_RETRY_S

    def _is_mine(self, pod: Pod) -> bool:
        node = self._nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        return node is not None and is_ours(node)

    def _on_object(self, kind: str, new: ConfigMap | Secret | None) -> None:
        if new is None:
            return
        self._context.objects.forget(kind, new.metadata.key)
        if kind == "cm" and new.metadata.key == f"{MAP_NAMESPACE}/{MAP_NAME}":
            self._context.images.prepare(new.data.get("runtime", ""))
        for pod in affected(self._running(), kind, new.metadata.key):
            self._runners[pod.metadata.uid].refresh()

    def _running(self) -> list[Pod]:
        return [runner.pod for runner in self._runners.values()]

    def _begin(self, runner: PodRunner) -> None:
        uid = runner.pod.metadata.uid
        self._runners[uid] = runner
        self._context.rank_reports.switch(True)
        self._tasks[uid] = asyncio.create_task(
            self._run_pod(uid, runner), name=f"pod {runner.pod.metadata.key}"
        )

    async def _run_pod(self, uid: str, runner: PodRunner) -> None:
        pause_s = RETRY_S
        try:
            await runner.run()
            pause_s = 0.0 if runner.is_told else TELL_RETRY_S
        except asyncio.CancelledError:
            raise
        except Exception:
            self._context.log.exception("pod runner failed", pod=runner.pod.metadata.key)
        finally:
            self._runners.pop(uid, None)
            self._tasks.pop(uid, None)
            self._context.rank_reports.switch(bool(self._runners))
        if runner.uses_session:
            self._pod_ended.set()
        asyncio.get_running_loop().call_later(pause_s, self._look_again, runner.pod.metadata.key)

    def _look_again(self, key: str) -> None:
        """Take a pod up again whose runner has ended, if there is something left to do."""
        if (pod := self._pods.get(key)) is not None:
            self._on_pod(None, pod)

    # Start

    async def _take_over(self) -> None:
        """Adopt or clean up what an agent before this one left, then begin with new pods."""
        by_uid = {pod.metadata.uid: pod for pod in self._pods.items()}
        adopted = ended = removed = 0
        kept: list[tuple[Pod, PodRecord]] = []
        for record in read_records(self._context.paths.pods):
            pod = by_uid.get(record.uid)
            self._context.addresses.reserve(record.address)
            if pod is None or self._is_over(pod) or not self._is_mine(pod):
                await self._clean_up(record)
                removed += 1
                continue
            if self._context.paths.pod_socket(record.uid).exists():
                adopted += 1
                self._take_over_network(record)
            else:
                ended += 1
            self._context.gpus.reserve(record.uid, record.gpus)
            self._context.plugins.reserve(record.uid, pod.spec.node_name, record.grants)
            kept.append((pod, record))
        self._context.names.take_over((record.uid, record.host) for _, record in kept)
        for pod, record in kept:
            self._begin(PodRunner(self._context, pod, record))
        living = set(self._runners)
        links = 0 if self._context.network is None else await self._context.network.sweep(living)
        sweep_sockets(self._context.paths.run, living)
        remove_cgroups(self._context.cluster_id, living=living)
        if self._context.network is not None:
            await self._context.network.way_out.open()
        self._is_open = True
        for pod in self._pods.items():
            self._on_pod(None, pod)
        self.found = FoundPods(adopted, ended, removed, links)
        self._report()

    def _take_over_network(self, record: PodRecord) -> None:
        network = self._context.network
        if network is None or not (record.host_network or record.peers):
            return
        pid = peer_of(self._context.paths.pod_socket(record.uid))
        if record.host_network:
            network.take_over_node(record.address, pid)
        else:
            network.direct.adopt(record.uid, record.peers, record.address, f"/proc/{pid}/ns/net")

    def _report(self) -> None:
        self._context.log.info("node agent ready", isolation=self._context.isolation, **asdict(self.found))
        path = self._context.paths.state / "agent.json"
        draft = path.with_suffix(".new")
        network = self._context.network
        facts = {
            "pid": os.getpid(),
            "started": clock.format_time(clock.now()),
            "isolation": self._context.isolation,
            "outside": network.way_out.report() if network is not None else None,
            "found": asdict(self.found),
        }
        draft.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)

    async def _clean_up(self, record: PodRecord) -> None:
        sandbox = Sandbox(self._context, record)
        with contextlib.suppress(OSError):
            sandbox.shim = await ShimConnection.connect(self._context.paths.pod_socket(record.uid))
        await sandbox.remove()
        await asyncio.to_thread(self._context.sweep, record.uid)

    async def _sweep_sessions(self) -> None:
        """Remove users' sessions soon after a pod has ended, and now and then."""
        while True:
            with contextlib.suppress(OSError):
                await self._context.sessions.sweep()
            self._pod_ended.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_PERIOD_S):
                    await self._pod_ended.wait()
                await asyncio.sleep(SESSION_KEPT_S)

    async def _renew_tokens(self) -> None:
        """Keep the tokens in pods from ending before the pods do."""
        while True:
            pods = [runner.pod for runner in self._runners.values() if not runner.is_ending]
            try:
                for pod in await self._context.objects.renewed_tokens(pods):
                    if runner := self._runners.get(pod.metadata.uid):
                        runner.refresh()
            except (OSError, ApiError) as error:  # a full disk, no server; the next turn is in time
                self._context.log.warning("tokens not renewed", error=str(error))
            await asyncio.sleep(TOKEN_CHECK_PERIOD_S)

    async def _sweep(self) -> None:
        while True:
            living = {pod.metadata.uid for pod in self._pods.items()} | set(self._runners)
            with contextlib.suppress(OSError):  # files come and go; the next sweep sees them
                living |= await asyncio.to_thread(History(self._context.paths).held_pods)
                await asyncio.to_thread(sweep_logs, self._context.paths.logs, living)
                for uid in await asyncio.to_thread(choose_ends, self._context.paths.ends, living):
                    self._context.ends.forget(uid)
            await asyncio.sleep(SWEEP_PERIOD_S)
