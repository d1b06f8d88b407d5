"""The official Python client, unmodified: typed, dynamic and custom objects, watches."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import kubernetes  # type: ignore[import-untyped]
from kubernetes import client, watch

Kubectl = Any
"""The runner of conftest.py: here for its server and namespace."""

SERVED_LIMIT_S = 30.0


@pytest.fixture
def configuration(kubectl: Kubectl) -> Any:
    loaded = client.Configuration()
    kubernetes.config.load_kube_config(kubectl._environment["KUBECONFIG"], client_configuration=loaded)
    return loaded


async def in_thread(configuration: Any, work: Callable[[Any], Any]) -> Any:
    """Run blocking calls beside the server's loop."""

    def run() -> Any:
        with client.ApiClient(configuration) as api_client:
            return work(api_client)

    return await asyncio.wait_for(asyncio.to_thread(run), 60)


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "gangline/base", "ports": [{"containerPort": 80}]}],
        },
    }


async def test_typed_objects_are_made_read_patched_listed_and_deleted(
    kubectl: Kubectl, configuration: Any
) -> None:
    def work(api_client: Any) -> None:
        core = client.CoreV1Api(api_client)
        made = core.create_namespaced_pod(kubectl.namespace, pod("p"))
        assert made.metadata.uid and made.status.phase == "Pending"
        assert made.spec.containers[0].ports[0].protocol == "TCP"
        patched = core.patch_namespaced_pod("p", kubectl.namespace, {"metadata": {"labels": {"more": "1"}}})
        assert patched.metadata.labels == {"app": "x", "more": "1"}
        by_path = core.patch_namespaced_pod(
            "p", kubectl.namespace, [{"op": "remove", "path": "/metadata/labels/more"}]
        )
        assert by_path.metadata.labels == {"app": "x"}
        status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        reported = core.patch_namespaced_pod_status("p", kubectl.namespace, status)
        assert {c.type for c in reported.status.conditions} >= {"Ready"}
        listing = core.list_namespaced_pod(kubectl.namespace, label_selector="app=x", limit=1)
        assert [item.metadata.name for item in listing.items] == ["p"]
        assert int(listing.metadata.resource_version) > 0
        core.delete_namespaced_pod("p", kubectl.namespace)
        with pytest.raises(client.ApiException) as refused:
            core.read_namespaced_pod("p", kubectl.namespace)
        assert refused.value.status == 404

    await in_thread(configuration, work)


async def test_job_and_lists_of_every_kind_validate(kubectl: Kubectl, configuration: Any) -> None:
    """The client's models are strict: one sloppy field would break the call."""

    def work(api_client: Any) -> None:
        template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
        batch = client.BatchV1Api(api_client)
        job = batch.create_namespaced_job(
            kubectl.namespace, {"metadata": {"name": "j"}, "spec": {"template": template}}
        )
        assert job.spec.backoff_limit == 6 and job.spec.completions == 1
        core = client.CoreV1Api(api_client)
        core.create_namespaced_service(
            kubectl.namespace,
            {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}},
        )
        core.create_namespaced_secret(
            kubectl.namespace, {"metadata": {"name": "s"}, "stringData": {"a": "b"}}
        )
        for listing in (
            core.list_namespace,
            core.list_node,
            core.list_service_for_all_namespaces,
            core.list_secret_for_all_namespaces,
            core.list_config_map_for_all_namespaces,
            core.list_event_for_all_namespaces,
            batch.list_job_for_all_namespaces,
            client.SchedulingV1Api(api_client).list_priority_class,
            client.CoordinationV1Api(api_client).list_lease_for_all_namespaces,
            client.ApiextensionsV1Api(api_client).list_custom_resource_definition,
        ):
            listing()
        batch.delete_namespaced_job("j", kubectl.namespace, propagation_policy="Background")

    await in_thread(configuration, work)


async def test_watch_delivers_changes_until_its_timeout(kubectl: Kubectl, configuration: Any) -> None:
    def work(api_client: Any) -> list[tuple[str, str]]:
        core = client.CoreV1Api(api_client)
        listing = core.list_namespaced_config_map(kubectl.namespace)
        core.create_namespaced_config_map(kubectl.namespace, {"metadata": {"name": "w"}})
        core.delete_namespaced_config_map("w", kubectl.namespace)
        events = watch.Watch().stream(
            core.list_namespaced_config_map,
            kubectl.namespace,
            resource_version=listing.metadata.resource_version,
            timeout_seconds=2,
        )
        return [(event["type"], event["object"].metadata.name) for event in events]

    seen = await in_thread(configuration, work)

    assert [event for event in seen if event[1] == "w"] == [("ADDED", "w"), ("DELETED", "w")]


async def test_custom_objects_and_the_dynamic_client(kubectl: Kubectl, configuration: Any) -> None:
    plural = "carriages"
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Carriage"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                    },
                }
            ],
        },
    }

    def work(api_client: Any) -> None:
        definitions = client.ApiextensionsV1Api(api_client)
        definitions.create_custom_resource_definition(definition)
        try:
            objects = client.CustomObjectsApi(api_client)
            at = ("example.dev", "v1", kubectl.namespace, plural)
            body = {
                "apiVersion": "example.dev/v1",
                "kind": "Carriage",
                "metadata": {"name": "c"},
                "spec": {"n": 1},
            }
            if kubectl.server is None:
                deadline = time.monotonic() + SERVED_LIMIT_S
                while True:
                    try:
                        objects.list_namespaced_custom_object(*at)
                        break
                    except client.ApiException:
                        assert time.monotonic() < deadline, "the new kind is not served"
                        time.sleep(0.05)
            objects.create_namespaced_custom_object(*at, body)
            patched = objects.patch_namespaced_custom_object(*at, "c", {"spec": {"n": 2}})
            assert patched["spec"] == {"n": 2}
            reported = objects.patch_namespaced_custom_object_status(*at, "c", {"status": {"ok": True}})
            assert reported["status"] == {"ok": True}
            assert len(objects.list_namespaced_custom_object(*at)["items"]) == 1
            objects.delete_namespaced_custom_object(*at, "c")

            dynamic = kubernetes.dynamic.DynamicClient(api_client)
            pods = dynamic.resources.get(api_version="v1", kind="Pod")
            made = pods.create(body=pod("d"), namespace=kubectl.namespace)
            assert made.metadata.name == "d"
            pods.delete(name="d", namespace=kubectl.namespace)
        finally:
            definitions.delete_custom_resource_definition(definition["metadata"]["name"])

    await in_thread(configuration, work)
