"""Pods tell ``gangline operator`` how far they are: over TLS, with the rights of its manifest alone."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest
from service_account import installed, make_namespace, refusals, serving, until

from gangline.api.crds import crds
from gangline.api.resources import CONFIG_MAPS, NAMESPACES, PODS, SECRETS, TRAINJOBS
from gangline.cli.serve.operator_status import CERTIFICATE_SECRET, listening
from gangline.jobs.settings import Settings
from gangline.kube.client import Client
from gangline.operator.service import OperatorOptions, OperatorService

pytestmark = pytest.mark.kubernetes

SYSTEM = "gangline-system"


def train_job(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "metadata": {"name": "told", "namespace": namespace},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "image"}},
    }


class PodOfJob:
    """Does what the program in a pod does, with what the pod was given."""

    def __init__(self, admin: Client, pod: dict[str, Any], authority: str) -> None:
        self._admin, self._pod = admin, pod
        (container,) = pod["spec"]["containers"]
        self.variables = {one["name"]: one.get("value") for one in container["env"]}
        self._trust = ssl.create_default_context(cadata=authority)

    async def token(self) -> str:
        """Return what a kubelet would put there."""
        (volume,) = [one for one in self._pod["spec"]["volumes"] if one["name"] == "kubeflow-trainer-token"]
        (wanted,) = [
            s["serviceAccountToken"] for s in volume["projected"]["sources"] if "serviceAccountToken" in s
        ]
        meta = self._pod["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        spec = {"audiences": [wanted["audience"]], "expirationSeconds": wanted["expirationSeconds"]}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        body = {**request, "spec": {**spec, "boundObjectRef": bound}}
        path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/default/token"
        return str((await self._admin.request("POST", path, body=body))["status"]["token"])

    async def tell(self, token: str, said: dict[str, Any], *, port: int = 0) -> int:
        """Post to where the pod was told, or to another operator of the same name."""
        url = self.variables["KUBEFLOW_TRAINER_SERVER_URL"] or ""
        if port:
            url = urlsplit(url)._replace(netloc=f"localhost:{port}").geturl()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps({"trainerStatus": said}).encode(), headers)

        def post() -> int:
            try:
                with urllib.request.urlopen(request, context=self._trust, timeout=10) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return int(error.code)

        return await asyncio.to_thread(post)


async def test_a_pod_tells_the_operator_of_a_cluster_how_far_it_is(real_cluster: Any) -> None:
    kubeconfig, namespace = real_cluster.kubeconfig, f"status-{uuid.uuid4().hex[:8]}"
    async with installed(kubeconfig, "operator.yaml", crds()) as admin:
        await make_namespace(admin, namespace)
        account = f"{SYSTEM}/gangline-operator"
        async with listening(admin, SYSTEM, "127.0.0.1", 0, "localhost") as endpoint:
            settings = Settings(status_endpoint=endpoint)
            options = OperatorOptions(
                namespace=namespace, settings=settings, leader_elect=True, lock_namespace=SYSTEM
            )
            async with (
                serving(admin, kubeconfig, account, lambda one: OperatorService(one, options)) as client,
                listening(client, SYSTEM, "127.0.0.1", 0, "localhost") as standby,
            ):
                await admin.create(TRAINJOBS, train_job(namespace))
                pod = await until(lambda: admin.get(PODS, "told-node-0-0", namespace))
                config = await until(lambda: admin.get(CONFIG_MAPS, "told-tls-config", namespace))
                teller = PodOfJob(admin, pod, config["data"]["ca.crt"])
                token = await teller.token()

                # Both have the certificate of the one Secret; each answers with its own rights.
                assert standby.authority == endpoint.authority
                ports = [int(one.url.rpartition(":")[2]) for one in (endpoint, standby)]
                for port, percent in zip(ports, (40, 60), strict=True):
                    assert await teller.tell(token, {"progressPercentage": percent}, port=port) == 200
                    job = await admin.get(TRAINJOBS, "told", namespace)
                    assert job["status"]["trainerStatus"]["progressPercentage"] == percent
                assert await teller.tell("none", {"progressPercentage": 1}) == 401
                assert not refusals(client)
        await admin.delete(NAMESPACES, namespace)
        await admin.delete(SECRETS, CERTIFICATE_SECRET, SYSTEM)
