"""The published MPIJobs apply unchanged with kubectl, and come back under every served version.

In scope: what an API server takes, stores and gives back. Out of scope: what is made of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.codec import load_file
from gangline.api.core import find_condition
from gangline.api.crds import crds
from gangline.api.mpijob import AnyJob
from gangline.api.mpijob_reading import read_observed
from gangline.api.resources import CRDS, MPIJOB_VERSIONS, MPIJOBS
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Invalid

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "published"
FILES = sorted(FOLDER.glob("*.yaml"))
COMMAND_LIMIT_S = 60.0
SERVED_LIMIT_S = 30.0


async def kubectl(api: Any, home: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(api.kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        f"--namespace={api.namespace}",
        f"--cache-dir={home}/cache",
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), COMMAND_LIMIT_S)
    assert process.returncode == 0, f"kubectl {' '.join(arguments)}: {err.decode()}"
    return out.decode()


@pytest.fixture
async def client(api: Any) -> Any:
    """A client of a server that serves MPIJobs."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    async with api.client() as one:
        for definition in crds():
            await apply(one, CRDS, definition)
        async with asyncio.timeout(SERVED_LIMIT_S):
            while not await is_served(one, api.namespace):
                await asyncio.sleep(0.02)
        yield one


async def is_served(client: Client, namespace: str) -> bool:
    try:
        for resource in MPIJOB_VERSIONS:
            await client.list(resource, namespace)
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
async def test_a_published_file_applies_and_is_read_back(
    api: Any, client: Client, tmp_path: Path, file: Path
) -> None:
    (document,) = load_file(file)

    # Strictly checked, as kubectl does by itself: an unknown field would be refused.
    await kubectl(api, tmp_path, "apply", "--validate=strict", "-f", str(file))
    again = await kubectl(api, tmp_path, "apply", "-f", str(file))
    stored = await client.get(MPIJOBS, document.name, api.namespace)

    assert again.endswith("unchanged\n")
    assert stored["apiVersion"] == "kubeflow.org/v2beta1"
    for name, value in document.value["spec"].items():
        assert stored["spec"][name] == value or name == "runPolicy"
    job = as_job(stored)
    read = read_observed(job.metadata, job.spec, job.status)
    assert read.errors == []
    assert read.job.version == document.api_version.rpartition("/")[2]


async def test_every_version_shows_the_same_job(api: Any, client: Client, tmp_path: Path) -> None:
    await kubectl(api, tmp_path, "apply", "-f", str(FOLDER / "v1alpha2-16-gpus.yaml"))
    name = "16gpu-tensorflow-benchmark-imagenet"

    specs = [(await client.get(version, name, api.namespace))["spec"] for version in MPIJOB_VERSIONS]

    assert all(spec == specs[0] for spec in specs)
    assert name in await kubectl(api, tmp_path, "get", "mj")


@pytest.mark.parametrize("api", ["embedded"], indirect=True)  # others prefer v1, for its name
@pytest.mark.parametrize("file", ["v2beta1-benchmarks.yaml", "v1alpha2-16-gpus.yaml", "v1-elastic.yaml"])
async def test_a_job_that_is_copied_from_what_kubectl_shows_keeps_its_meaning(
    api: Any, client: Client, tmp_path: Path, file: str
) -> None:
    (document,) = load_file(FOLDER / file)
    await kubectl(api, tmp_path, "create", "-f", str(FOLDER / file))
    shown = await kubectl(api, tmp_path, "get", "mpijob", document.name, "-o", "yaml")
    (tmp_path / "copy.yaml").write_text(shown)
    await kubectl(api, tmp_path, "delete", "mpijob", document.name)

    await kubectl(api, tmp_path, "create", "-f", str(tmp_path / "copy.yaml"))

    assert shown.startswith("apiVersion: kubeflow.org/v2beta1\n")
    job = as_job(await client.get(MPIJOBS, document.name, api.namespace))
    read = read_observed(job.metadata, job.spec, job.status)
    assert (read.errors, read.job.version) == ([], document.api_version.rpartition("/")[2])


async def test_a_status_can_be_written_to_a_job_of_any_version(
    api: Any, client: Client, tmp_path: Path
) -> None:
    """The whole object is checked against the stored version's schema then."""
    for file in FILES:
        (document,) = load_file(file)
        await kubectl(api, tmp_path, "apply", "-f", str(file))
        condition = {"type": "Created", "status": "True"}
        patch = {"status": {"conditions": [condition]}}

        answer = await client.patch(MPIJOBS, document.name, patch, api.namespace, subresource="status")

        assert find_condition(conditions_of(answer), "Created")


async def test_stray_fields_of_an_old_version_are_taken(api: Any, client: Client, tmp_path: Path) -> None:
    (document,) = load_file(FOLDER / "v1alpha2-16-gpus.yaml")
    document.value["spec"]["colour"] = "red"
    document.value["spec"]["mpiReplicaSpecs"]["Worker"]["shape"] = "round"
    file = tmp_path / "job.json"
    file.write_text(json.dumps(document.value))

    await kubectl(api, tmp_path, "apply", "--validate=strict", "-f", str(file))


async def test_the_manager_of_a_job_cannot_be_changed(api: Any, client: Client, tmp_path: Path) -> None:
    (document,) = load_file(FOLDER / "v2beta1-benchmarks.yaml")
    await kubectl(api, tmp_path, "apply", "-f", str(FOLDER / "v2beta1-benchmarks.yaml"))

    for manager in ("kueue.x-k8s.io/multikueue", "kubeflow.org/mpi-operator"):
        patch = {"spec": {"runPolicy": {"managedBy": manager}}}
        with pytest.raises(Invalid, match="immutable"):
            await client.patch(MPIJOBS, document.name, patch, api.namespace)


def as_job(wire: dict[str, Any]) -> AnyJob:
    return msgspec.convert(wire, AnyJob)


def conditions_of(wire: dict[str, Any]) -> Any:
    job = as_job(wire)
    return read_observed(job.metadata, job.spec, job.status).job.status.conditions
