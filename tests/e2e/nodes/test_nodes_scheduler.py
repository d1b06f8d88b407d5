"""The gang scheduler beside somebody who fills a node: a kubelet refuses a worker, the gang goes anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from node import PAUSE_IMAGE

from gangline.api.resources import EVENTS, MPIJOBS, PODS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.scheduler.service import SchedulerOptions, SchedulerService

SCHEDULER = "gangline-scheduler"


class HeldBindings(Client):
    """A client whose bindings wait until they may go."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.decided, self.may_bind = asyncio.Event(), asyncio.Event()
        self.chosen = ""

    async def post_all(self, requests: Any) -> Any:
        if bindings := [body for _, body in requests if body["kind"] == "Binding"]:
            self.chosen = bindings[0]["target"]["name"]
            self.decided.set()
            await self.may_bind.wait()
        return await super().post_all(requests)


def template(cpu: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    container = {"name": "main", "image": PAUSE_IMAGE, "command": ["/pause"], "resources": resources}
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


def idle_job() -> dict[str, Any]:
    roles = {
        "Launcher": {"restartPolicy": "Never", "template": template("")},
        "Worker": {"replicas": 2, "template": template("900m")},
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi"},
        "spec": {"mpiReplicaSpecs": roles, "runPolicy": {"activeDeadlineSeconds": 600}},
    }


@pytest.mark.parametrize("jobs", [["--gang-scheduling", SCHEDULER]], indirect=True)
async def test_a_worker_that_a_kubelet_refuses_has_its_gang_placed_anew(nodes: Any, jobs: Any) -> None:
    async with HeldBindings(load_kubeconfig(nodes.kubeconfig)) as client:
        scheduler = asyncio.create_task(SchedulerService(client, SchedulerOptions()).run())
        try:
            await jobs.submit(idle_job())
            async with asyncio.timeout(60):
                await client.decided.wait()
            full = client.chosen
            (other,) = set(nodes.names) - {full}
            theirs = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "theirs", "namespace": jobs.namespace},
                "spec": template("1500m")["spec"] | {"nodeName": full},
            }
            await jobs.client.create(PODS, theirs)

            async def theirs_runs() -> bool:
                found = await jobs.get(PODS, "theirs")
                return bool(found) and found["status"]["phase"] == "Running"

            await jobs.until(theirs_runs, "running pod of somebody else")
            client.may_bind.set()

            async def all_run() -> Any:
                pods = await jobs.pods()
                where = sorted(one["spec"].get("nodeName", "") for one in await jobs.pods("worker"))
                is_up = all(one["status"]["phase"] == "Running" for one in pods)
                return len(pods) == 3 and is_up and where == [other, other]

            await jobs.until(all_run, "gang that runs whole on the other node")

            async def told() -> list[str]:
                events = (await jobs.client.list(EVENTS, jobs.namespace)).items
                return [one["message"] for one in events if one["reason"] == "NodeRefused"]

            refused = await jobs.until(told, "event of the refusal")
            assert f"node {full} refused {jobs.namespace}/pi-worker-" in refused[0]
            assert "(OutOfcpu)" in refused[0]
            await jobs.condition("Running")
            job = await jobs.client.get(MPIJOBS, "pi", jobs.namespace)
            assert [one["type"] for one in job["status"]["conditions"] if one["status"] == "True"] == [
                "Created",
                "Running",
            ]
            group = await jobs.get(SCHEDULER_PLUGINS_POD_GROUPS, "pi")
            assert group["metadata"]["annotations"]["gangline.dev/limit-seconds"] == "600"
        finally:
            scheduler.cancel()
            await asyncio.gather(scheduler, return_exceptions=True)


class Bursts:
    """Pods that come at once: two workers of a gang that need most of a node each, and single ones."""

    def __init__(self, client: Client, jobs: Any) -> None:
        self.client, self.jobs = client, jobs
        self.refused: dict[str, str] = {}

    def pod(self, name: str, cpu: str, scheduler: str, labels: dict[str, str]) -> dict[str, Any]:
        spec = {**template(cpu)["spec"], "restartPolicy": "Never", "schedulerName": scheduler}
        metadata = {"name": name, "namespace": self.jobs.namespace, "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def gang(self, number: int) -> list[dict[str, Any]]:
        labels = {
            "pod-group.scheduling.sigs.k8s.io/name": f"gang-{number}",
            "pod-group.scheduling.sigs.k8s.io/min-available": "2",
        }
        return [self.pod(f"gang-{number}-{index}", "1200m", SCHEDULER, labels) for index in range(2)]

    def singles(self, number: int) -> list[dict[str, Any]]:
        return [self.pod(f"single-{number}-{index}", "600m", "default-scheduler", {}) for index in range(6)]

    async def create(self, pods: list[dict[str, Any]]) -> None:
        await asyncio.gather(*(self.client.create(PODS, one) for one in pods))

    async def phases(self) -> dict[str, str]:
        pods = (await self.client.list(PODS, self.jobs.namespace)).items
        for one in pods:
            if reason := one["status"].get("reason"):
                self.refused[one["metadata"]["name"]] = reason
        return {one["metadata"]["name"]: one["status"]["phase"] for one in pods}

    async def until_running(self, kind: str, count: int) -> None:
        async def so_many_run() -> bool:
            found = await self.phases()
            return count <= sum(found[name] == "Running" for name in found if name.startswith(kind))

        await self.jobs.until(so_many_run, f"{count} pods {kind} that run")

    async def delete(self, pods: list[dict[str, Any]]) -> None:
        for one in pods:
            await self.client.delete(PODS, one["metadata"]["name"], self.jobs.namespace, grace_period_s=0)

        async def are_gone() -> bool:
            return not (await self.phases()).keys() & {one["metadata"]["name"] for one in pods}

        await self.jobs.until(are_gone, "end of the pods")


async def test_a_gang_and_single_pods_that_come_at_once_never_get_the_same_room(
    nodes: Any, jobs: Any
) -> None:
    async with Client(load_kubeconfig(nodes.kubeconfig)) as client:
        bursts = Bursts(client, jobs)
        scheduler = asyncio.create_task(SchedulerService(client, SchedulerOptions()).run())
        try:
            for number in range(8):
                gang, singles = bursts.gang(number), bursts.singles(number)
                await bursts.create([*gang, *singles] if number % 2 else [*singles[:3], *gang, *singles[3:]])
                await bursts.until_running("single", 2)
                await bursts.delete(singles)
                await bursts.until_running("gang", 2)
                await bursts.delete(gang)
            assert bursts.refused == {}
        finally:
            scheduler.cancel()
            await asyncio.gather(scheduler, return_exceptions=True)
