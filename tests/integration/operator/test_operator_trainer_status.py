"""What pods tell of their training, on API servers: who may, and where it is found."""

from __future__ import annotations

import json
from email.message import Message
from typing import Any

import pytest

from gangline.api.resources import PODS, SERVICE_ACCOUNTS, TRAINJOBS
from gangline.jobs.training.status_access import status_path, token_audience
from gangline.kube.http_paths import PathAnswer, Posted
from gangline.operator.trainer_status import TrainerStatusDesk


async def running_job(cluster: Any, name: str) -> dict[str, Any]:
    """Make a job of one pod and return the pod."""
    job = {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "image"}},
    }
    await cluster.client.create(TRAINJOBS, job)
    pod: dict[str, Any] = await cluster.exists(PODS, f"{name}-node-0-0")
    return pod


async def token_of(cluster: Any, pod: dict[str, Any], audience: str) -> str:
    """Return a token such as a kubelet mounts into a pod."""
    meta = pod["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [audience], "expirationSeconds": 3600, "boundObjectRef": bound},
    }
    await cluster.exists(SERVICE_ACCOUNTS, "default")
    path = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/default/token"
    answer = await cluster.client.request("POST", path, body=request)
    return str(answer["status"]["token"])


class Teller:
    """Posts what a pod says."""

    def __init__(self, cluster: Any) -> None:
        self._namespace = cluster.namespace
        self._desk = TrainerStatusDesk(cluster.client)

    async def tell(self, token: str, status: Any, job: str = "told") -> PathAnswer:
        headers = Message()
        headers["Authorization"] = f"Bearer {token}"
        body = json.dumps({"trainerStatus": status}).encode()
        return await self._desk.take(Posted(status_path(self._namespace, job), headers, body))

    async def heard(self, cluster: Any, token: str, status: Any) -> PathAnswer:
        """Tell until the API server has the new pod in sight, and knows its token for a good one."""

        async def answer() -> PathAnswer | None:
            answer = await self.tell(token, status)
            return None if answer.status == 401 else answer

        said: PathAnswer = await cluster.until(answer)
        return said


async def test_a_pod_tells_how_far_it_is_and_each_word_replaces_the_one_before(cluster: Any) -> None:
    pod = await running_job(cluster, "told")
    token = await token_of(cluster, pod, token_audience(cluster.namespace, "told"))
    teller = Teller(cluster)
    first = {"progressPercentage": 40, "estimatedRemainingSeconds": 90}

    assert (await teller.heard(cluster, token, first)).status == 200
    loss = [{"name": "loss", "value": "0.25"}]
    second = {"progressPercentage": 60, "metrics": loss, "lastUpdatedTime": "2026-05-01T12:00:00Z"}
    assert (await teller.tell(token, second)).status == 200

    job = await cluster.client.get(TRAINJOBS, "told", cluster.namespace)
    assert job["status"]["trainerStatus"] == second
    await cluster.set_phase(pod, "Succeeded")

    async def complete() -> Any:
        job = await cluster.client.get(TRAINJOBS, "told", cluster.namespace)
        types = [one["type"] for one in job["status"].get("conditions", [])]
        return job if types == ["Complete"] else None

    assert (await cluster.until(complete))["status"]["trainerStatus"] == second


async def test_only_a_pod_of_the_job_with_its_token_is_heard(cluster: Any) -> None:
    own, other = await running_job(cluster, "told"), await running_job(cluster, "other")
    audience = token_audience(cluster.namespace, "told")
    teller, said = Teller(cluster), {"progressPercentage": 1}

    assert (await teller.tell("no token", said)).status == 401
    of_server = await token_of(cluster, own, "https://kubernetes.default.svc")
    assert (await teller.tell(of_server, said)).status == 401
    stranger = await token_of(cluster, other, audience)
    answer = await teller.heard(cluster, stranger, said)
    assert (answer.status, b"other-node-0-0 is none of TrainJob" in answer.body) == (403, True)
    job = await cluster.client.get(TRAINJOBS, "told", cluster.namespace)
    assert "trainerStatus" not in job["status"]


@pytest.mark.parametrize("status", [{"progressPercentage": 101}, {"metrics": [{"name": "loss"}]}, "half"])
async def test_what_the_definition_does_not_allow_is_refused(cluster: Any, status: Any) -> None:
    pod = await running_job(cluster, "told")
    token = await token_of(cluster, pod, token_audience(cluster.namespace, "told"))

    assert (await Teller(cluster).heard(cluster, token, status)).status == 422


async def test_a_pod_that_starts_again_under_its_name_is_heard(cluster: Any) -> None:
    teller = Teller(cluster)
    pod = await running_job(cluster, "told")
    audience = token_audience(cluster.namespace, "told")
    assert (await teller.heard(cluster, await token_of(cluster, pod, audience), None)).status == 200
    meta = pod["metadata"]
    await cluster.client.delete(PODS, meta["name"], meta["namespace"], grace_period_s=0, uid=meta["uid"])

    async def again() -> Any:
        new = await cluster.exists(PODS, meta["name"])
        return new if new["metadata"]["uid"] != meta["uid"] else None

    token = await token_of(cluster, await cluster.until(again), audience)
    assert (await teller.heard(cluster, token, None)).status == 200
