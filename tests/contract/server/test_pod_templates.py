"""The pod templates of a job's definition: what a server says of a field that pods do not have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangline.api.crds import crds
from gangline.api.resources import CRDS, MPIJOBS
from gangline.kube.apply import apply
from gangline.kube.errors import Invalid

ROLE = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]"


@pytest.fixture
async def with_jobs(api: Any, kubectl: Any) -> Any:
    async with api.client() as client:
        for definition in crds():
            await apply(client, CRDS, definition)
    await kubectl.ok("wait", "--for=condition=Established", "crd/mpijobs.kubeflow.org", "--timeout=60s")
    return kubectl


def job(name: str, container: dict[str, Any], *, version: str = "v2beta1", **pod: Any) -> str:
    container = {"name": "main", "image": "gangline/base", "command": ["true"], **container}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], **pod}}
    return json.dumps(
        {
            "apiVersion": f"kubeflow.org/{version}",
            "kind": "MPIJob",
            "metadata": {"name": name},
            "spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": template}}},
        }
    )


@pytest.mark.parametrize("verb", [("create",), ("apply",), ("apply", "--server-side")], ids=" ".join)
async def test_kubectl_refuses_a_mistyped_field_with_its_path(with_jobs: Any, verb: tuple[str, ...]) -> None:
    wrong = job("wrong", {"resources": {"limit": {"cpu": 1}}, "env": [{"name": "A", "vaule": "1"}]})
    outcome = await with_jobs.run(*verb, "-f", "-", stdin=wrong)

    assert outcome.code == 1
    for field in ("resources.limit", "env[0].vaule"):
        words = f".{field}: field not declared in schema" if "--server-side" in verb else field
        assert words in outcome.err or f'unknown field "{ROLE}.{field}"' in outcome.err
    assert (await with_jobs.run("get", "mpijob", "wrong")).code == 1


async def test_who_asks_for_warnings_gets_them_and_the_field_is_dropped(with_jobs: Any) -> None:
    wrong = job("warned", {"resources": {"limit": {"cpu": 1}, "limits": {"cpu": 1}}})
    outcome = await with_jobs.run("create", "--validate=warn", "-f", "-", stdin=wrong)

    assert (outcome.code, outcome.err) == (0, f'Warning: unknown field "{ROLE}.resources.limit"\n')
    stored = json.loads(await with_jobs.ok("get", "mpijob", "warned", "-o", "json"))
    container = stored["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"cpu": 1}}


async def test_all_that_a_pod_may_say_is_kept_as_written(with_jobs: Any) -> None:
    said = {
        "resources": {"limits": {"cpu": 0.5, "memory": "1.5Gi", "nvidia.com/gpu": 1}},
        "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 3},
        "readinessProbe": {"tcpSocket": {"port": 80}},
    }
    pod = {
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "overhead": {"cpu": "250m"},
        "nodeSelector": {"any": "thing"},
    }
    await with_jobs.ok("create", "-f", "-", stdin=job("rich", said, **pod))

    stored = json.loads(await with_jobs.ok("get", "mpijob", "rich", "-o", "json"))
    spec = stored["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    assert spec.pop("containers") == [{"name": "main", "image": "gangline/base", "command": ["true"], **said}]
    assert spec == pod


async def test_nulls_count_as_absent(with_jobs: Any) -> None:
    await with_jobs.ok("create", "-f", "-", stdin=job("nulls", {"resources": None}, volumes=None))

    stored = json.loads(await with_jobs.ok("get", "mpijob", "nulls", "-o", "json"))
    spec = stored["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    assert spec["containers"][0].get("resources") is None
    assert spec.get("volumes") is None


async def test_a_value_of_another_type_is_refused(api: Any, with_jobs: Any) -> None:
    async with api.client() as client:
        for name, container in (
            ("text", {"command": "true"}),
            ("count", {"ports": [{"containerPort": "80"}]}),
        ):
            with pytest.raises(Invalid) as refused:
                document = json.loads(job(name, container))
                document["metadata"]["namespace"] = api.namespace
                await client.create(MPIJOBS, document)
            assert "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]" in str(refused.value)


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
async def test_old_versions_take_what_they_took(with_jobs: Any, version: str) -> None:
    stray = job(f"stray-{version}", {"resources": {"limit": {"cpu": 1}}}, version=version)

    assert "created" in await with_jobs.ok("create", "-f", "-", stdin=stray)


async def test_a_status_may_be_written_whatever_an_old_version_let_in(api: Any, with_jobs: Any) -> None:
    await with_jobs.ok("create", "-f", "-", stdin=job("text", {"command": "true"}, version="v1"))

    async with api.client() as client:
        status = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
        written = await client.patch(MPIJOBS, "text", status, api.namespace, subresource="status")
        assert written["status"] == status["status"]
        with pytest.raises(Invalid):
            await client.patch(MPIJOBS, "text", {"spec": {"slotsPerWorker": "two"}}, api.namespace)


async def test_explain_knows_the_fields_of_a_pod(with_jobs: Any) -> None:
    path = "mpijob.spec.mpiReplicaSpecs.template.spec.containers.resources"
    shown = await with_jobs.ok("explain", path, "--api-version=kubeflow.org/v2beta1")

    assert {"limits", "requests", "claims"} <= {line.split("\t")[0].strip() for line in shown.splitlines()}
